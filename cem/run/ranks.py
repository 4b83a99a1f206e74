"""A search of many ranks, the processes of ``torchrun``, ``mpirun`` or ``srun``.

Every rank runs the complete search: it draws all candidates, which are a function of (seed,
generation), evaluates its share, gathers the fitness of the others, and moves the same
distribution to the same bits. So ranks only exchange fitness, and any number of them gives the
results of a single process. Rank 0 writes the files; only the evaluations of candidates one by
one are written by every rank.

``minimize(..., distributed=True)`` does all of this. These functions are for loops of your own.
"""

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
    """Return an objective that all ranks evaluate together, each a share of the candidates.

    Args:
        objective: Maps candidates to fitness, which must not depend on the other candidates. It
            returns no metrics, because they would be those of a share.
        stop: As for ``run_collective``.

    Returns:
        An objective whose fitness is float64.
    """

    def evaluate(candidates: Any, generation: Any) -> Tensor:
        own = candidates[share(len(candidates))]

        def evaluate_own() -> Tensor:
            result = objective(own, generation)
            if isinstance(result, Evaluation):
                if result.metrics or result.candidates is not None:
                    expected = "fitness alone of an objective that ranks share"
                    raise ValueError(f"expected {expected}, got metrics or candidates")
                result = result.fitness
            return check_shape("fitness", result, (len(own),)).double()

        return gather(run_collective(evaluate_own, stop), len(candidates))

    return evaluate
