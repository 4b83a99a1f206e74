"""A search on many ranks, the processes of ``torchrun``, ``mpirun`` or ``srun``.

Every rank runs the complete search. It draws all candidates, which are a function of (seed,
generation), evaluates its share of them, and gathers the fitness of the others. Then it updates
the distribution, with the same result on all ranks, bit for bit. So the ranks only exchange
fitness, and any number of ranks gives the results of a single process. Rank 0 writes the files,
except that every rank writes the candidates that it has evaluated one by one.

``minimize(..., distributed=True)`` does all of this. These functions are for your own loops.
"""

from functools import partial
from typing import Any

from torch import Tensor

from cem.core.checks import check_shape
from cem.core.evaluation import Objective, as_evaluation
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
    """Return an objective that shares the evaluation of the candidates among all ranks.

    Args:
        objective: Maps candidates to fitness. The fitness of a candidate must not depend on the
            others. The objective must not return metrics, which would describe only a share.
        stop: A request to stop, on which all ranks agree after each evaluation.

    Returns:
        An objective whose fitness is float64.
    """

    def evaluate(candidates: Any, generation: Any) -> Tensor:
        """Evaluate this rank's share of the candidates, and return the fitness of all."""
        rows_of_this_rank = share(len(candidates))
        own = candidates[rows_of_this_rank]
        # If one rank is interrupted, this raises Interrupted on all ranks.
        own_fitness = run_collective(partial(_evaluate, objective, own, generation), stop)
        return gather(own_fitness, len(candidates))

    return evaluate


def _evaluate(objective: Objective, own: Any, generation: Any) -> Tensor:
    """Return the fitness of the candidates of this rank, ``own``, float64."""
    evaluation = as_evaluation(objective(own, generation))
    if evaluation.metrics or evaluation.candidates is not None:
        raise ValueError(
            "expected fitness alone of an objective that ranks share, got metrics or candidates"
        )
    return check_shape("fitness", evaluation.fitness, tuple(own.shape[:-1])).double()
