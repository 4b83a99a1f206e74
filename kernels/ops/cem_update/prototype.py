"""The first update of a search in Numba; less fitness is better.

The rank of a candidate is the number of candidates before it; who is among the first is an elite. Then every
dimension adds up its elites. The operator finds them without comparing each candidate with all others.
"""

from __future__ import annotations

import math

import numpy as np
from numba import cuda

from kernels.ops.numba_launch import Array, launch


@cuda.jit
def rank_kernel(fitness: Array, elites: Array) -> None:
    """A thread owns the candidates i, i + threads, ...; an elite's index goes to the place of its rank."""
    for i in range(cuda.grid(1), fitness.size, cuda.gridsize(1)):
        rank = 0
        for k in range(fitness.size):
            if fitness[k] < fitness[i] or (fitness[k] == fitness[i] and k < i):
                rank += 1
        if rank < elites.size:
            elites[rank] = i


@cuda.jit
def update_kernel(candidates: Array, elites: Array, distribution: Array) -> None:
    """A thread owns the dimensions j, j + threads, ...: mean, std, averaged mean and best candidate."""
    for j in range(cuda.grid(1), candidates.shape[1], cuda.gridsize(1)):
        best = np.float64(candidates[elites[0], j])
        first, second = 0.0, 0.0
        for k in range(elites.size):
            x = candidates[elites[k], j] - best
            first += x
            second += x * x
        offset = first / elites.size
        distribution[0, j] = best + offset
        distribution[1, j] = math.sqrt(max(0.0, second / elites.size - offset * offset))
        distribution[2, j] = best + offset
        distribution[3, j] = best


@cuda.jit
def record_kernel(fitness: Array, elites: Array, record: Array) -> None:
    """One thread: best fitness so far and of the generation, mean of the elites', the worst one's."""
    if cuda.grid(1) == 0:
        total = 0.0
        for k in range(elites.size):
            total += fitness[elites[k]]
        record[0] = fitness[elites[0]]
        record[1] = fitness[elites[0]]
        record[2] = total / elites.size
        record[3] = fitness[elites[elites.size - 1]]
        record[4] = 0.0


def forward(
    fitness: Array, candidates: Array, distribution: Array, *, num_elites: int
) -> tuple[Array, Array, Array, Array]:
    """Return distribution, record and generation after the first generation, and the elites, best first."""
    (elites,) = launch(rank_kernel, fitness, like=[np.empty(num_elites, np.int64)])
    (after,) = launch(update_kernel, candidates, elites, like=[distribution])
    (record,) = launch(record_kernel, fitness, elites, like=[np.empty(5, np.float64)])
    return after, record, np.array(1, np.int64), elites
