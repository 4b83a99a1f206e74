"""A search of many ranks, the processes that ``torchrun`` started on one host or many.

Every rank has the whole search: it draws all candidates, which are a function of (seed, generation),
evaluates its share of them, gathers the fitness of the others, and moves the same distribution to the same
bits. So nothing but fitness travels, and any number of ranks gives what one process gives. Rank 0 alone
writes.

``minimize(..., distributed=True)`` has all of it; what follows is for loops of one's own.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from cem.core.checks import check_shape
from cem.core.evaluation import Evaluation, Objective
from cem.run.stopping import StopRequest
from kernels.support.ranks import (
    RanksError,
    all_reduce_max,
    broadcast,
    count,
    gather,
    joined,
    rank,
    run_collective,
    share,
)

__all__ = [
    "RanksError",
    "all_reduce_max",
    "broadcast",
    "count",
    "gather",
    "joined",
    "rank",
    "run_collective",
    "share",
    "shared",
]


def shared(objective: Objective, stop: StopRequest | None = None) -> Objective:
    """Return an objective of all ranks, each of which evaluates its share of the candidates.

    The objective gives each candidate the same fitness in any population, and no metrics, since they would
    be those of a share. The fitness travels as float64. ``stop`` is as of ``run_collective``.
    """

    def evaluate(candidates: Any, generation: Any) -> Tensor:
        own = candidates[share(len(candidates))]

        def fitness() -> Tensor:
            found = objective(own, generation)
            if isinstance(found, Evaluation):
                if found.metrics or found.candidates is not None:
                    raise ValueError(
                        "expected fitness alone of an objective that ranks share, got metrics or candidates"
                    )
                found = found.fitness
            return check_shape("fitness", found, (len(own),)).double()

        return gather(run_collective(fitness, stop), len(candidates))

    return evaluate
