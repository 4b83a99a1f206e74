"""The first update of a search in Numba: the kernels of ``op.cu`` before they were CUDA.

The rank of a candidate is the number of candidates before it; who is among the first is an elite. Then every
dimension adds up its elites. op.cu finds the same elites without comparing each candidate with every other.

Without a GPU, Numba's simulator runs the kernels as Python: set ``NUMBA_ENABLE_CUDASIM=1`` before the import.
``python -m kernels check cem_update`` does so, and compares them with PyTorch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

Array = NDArray[Any]

# Any grid computes the same. The simulator starts a Python thread for each thread of a block, so it is small.
_BLOCKS, _THREADS = 2, 32


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
    """Returns distribution, record and generation after the first generation, and the elites, best first.

    Args:
        fitness: (N,), finite; less is better.
        candidates: (N, d), the dtype of the fitness.
        distribution: (4, d), of which nothing stays.
        num_elites: from 1 to N.
    """
    scores, rows = cuda.to_device(fitness), cuda.to_device(candidates)
    elites = cuda.device_array(num_elites, np.int64)
    new, record = cuda.device_array_like(distribution), cuda.device_array(5, np.float64)
    rank_kernel[_BLOCKS, _THREADS](scores, elites)
    update_kernel[_BLOCKS, _THREADS](rows, elites, new)
    record_kernel[_BLOCKS, _THREADS](scores, elites, record)
    results = (np.asarray(array.copy_to_host()) for array in (new, record, elites))
    after, told, chosen = results
    return after, told, np.array(1, np.int64), chosen
