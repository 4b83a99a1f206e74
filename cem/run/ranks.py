"""A search of many ranks, the processes that ``torchrun`` started on one host or many.

Every rank has the whole search: it draws all candidates, which are a function of (seed, generation),
evaluates its share of them, gathers the fitness of the others, and moves the same distribution to the same
bits. So nothing but fitness travels, and any number of ranks gives what one process gives. Rank 0 alone
writes.

``minimize(..., distributed=True)`` has all of it; what follows is for loops of one's own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cem.core.checks import REAL, check_shape
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
    "StopConsensus",
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


class StopConsensus(StopRequest):
    """The stop of all ranks: a signal, a deadline or a request on one of them, once ``run_collective`` knows.

    A ``Trainer`` with it stops all ranks after the same generation.
    """

    def __init__(self, own: StopRequest) -> None:
        """Take the stop request of this process, whose context the caller enters."""
        self._own = own
        self._agreed_signum: int | None = None
        self._agreed = self._expired = False
        super().__init__()

    @property
    def deadline(self) -> float | None:
        """That of this process."""
        return self._own.deadline

    @deadline.setter
    def deadline(self, deadline: float | None) -> None:
        self._own.deadline = deadline

    @property
    def own_reason(self) -> tuple[int, int]:
        """Why this process is asked to stop: 2 by request, 1 by deadline, or 0; and its signal, or 0."""
        reason = 2 if self._own.requested else 1 if self._own.expired else 0
        return reason, self._own.signum or 0

    def agree(self, reason: int, signum: int) -> None:
        """Take the reason and signal of all ranks."""
        self._agreed, self._expired = reason == 2, reason == 1
        self._agreed_signum = signum or None

    @property
    def requested(self) -> bool:
        """Whether a rank was asked to stop."""
        return self._agreed

    @property
    def signum(self) -> int | None:
        """A signal that a rank got; None if none did."""
        return self._agreed_signum

    @property
    def expired(self) -> bool:
        """Whether the deadline of a rank has passed."""
        return self._expired

    def request(self) -> None:
        """Ask all ranks to stop."""
        self._own.request()

    def check(self) -> None:
        """Raise if this process is asked to stop; for use within ``run_collective``.

        Raises:
            Interrupted: If a stop was requested or the deadline has passed.
        """
        self._own.check()

    def __enter__(self) -> StopConsensus:
        return self


def shared(objective: Objective, stop: StopConsensus | None = None) -> Objective:
    """Return an objective of all ranks, each of which evaluates its share of the candidates.

    Args:
        objective: Gives each candidate the same fitness in any population. Its metrics, if it gives some,
            are refused, since they are those of a share.
        stop: As of ``run_collective``.
    """

    def evaluate(candidates: Any, generation: Any) -> Tensor | Evaluation:
        total = len(candidates)
        own = candidates[share(total)]

        def fitness() -> Tensor:
            found = objective(own, generation)
            if isinstance(found, Evaluation):
                if found.metrics or found.candidates is not None:
                    raise ValueError(
                        "expected fitness alone of an objective that ranks share, got metrics or candidates"
                    )
                found = found.fitness
            return check_shape("fitness", found, (len(own),))

        return gather(_of_one_dtype(run_collective(fitness, stop)), total)

    return evaluate


def _of_one_dtype(fitness: Tensor) -> Tensor:
    """Widen fitness whose dtype is not that of the other ranks, or none that all backends send."""
    number = REAL.index(fitness.dtype)
    most, least = all_reduce_max([number, -number])
    if most == -least:
        return fitness.long() if fitness.dtype == torch.int16 else fitness
    return fitness.double()
