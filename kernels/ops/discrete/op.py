"""Sample categorical variables and permutations: the same bits on CPU, CUDA and in plain PyTorch.

Probabilities become integers, so that sums are exact in any order: w = round(2^48 p). Of 64 random bits r and
u = floor(r sum(w) / 2^64), the index drawn is the number of prefix sums of w that are at most u. Its
probability differs from w_i / sum(w) by less than 2^-63, and is 0 where w_i is. Where all w are 0, all are
taken as 1. discrete.h says what r is: a function of (seed, generation, candidate, variable or step) alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, int64

from kernels.ops.library import Library


def sample_categorical(
    tables: Tensor, sizes: Sequence[int], num_samples: int, *, seed: Tensor, generation: Tensor
) -> Tensor:
    """Draw independent categorical variables; the result has no gradients.

    A number depends neither on how many candidates there are, nor on the variables after it.

    Args:
        tables: shape (..., T), float64, in [0, 1]: the probabilities of one variable after the other. Those
            of a variable are divided by their sum; below 2^-49 they are 0.
        sizes: of each of the V variables, 1 to 4096 categories, T in all.
        num_samples: N, 0 or more.
        seed: shape (...), int64.
        generation: shape (), int64, taken modulo 2**63.

    Returns:
        Indices of categories, shape (..., N, V), int64.

    Raises:
        TypeError: a tensor has the wrong type.
        ValueError: a tensor has a wrong shape or device, or a number is out of range.
        kernels.BuildError: the operator has to be built, and cannot be.
    """
    result: Tensor = _LIBRARY.call("sample_categorical", tables, list(sizes), num_samples, seed, generation)
    return result


def sample_permutation(table: Tensor, num_samples: int, *, seed: Tensor, generation: Tensor) -> Tensor:
    """Draw permutations item by item, by transitions without return; the result has no gradients.

    Each step draws among the items left, by the row of the item before. P.-T. de Boer, D. P. Kroese, S.
    Mannor and R. Y. Rubinstein, A Tutorial on the Cross-Entropy Method, Annals of Operations Research 134, 2005,
    section 4: the travelling salesman, whose first town is fixed by a row 0 with one 1.

    Args:
        table: shape (..., n + 1, n), float64, in [0, 1], 1 <= n < 32768: in row 0 the probabilities of the
            first item, in row 1 + i those of the item after item i. Those of the items left are divided by
            their sum; below 2^-49 they are 0.
        num_samples: N, 0 or more.
        seed: shape (...), int64.
        generation: shape (), int64, taken modulo 2**63.

    Returns:
        Indices of items, shape (..., N, n), int64.

    Raises:
        TypeError, ValueError, kernels.BuildError: As ``sample_categorical``.
    """
    result: Tensor = _LIBRARY.call("sample_permutation", table, num_samples, seed, generation)
    return result


def _fake_categorical(tables: Tensor, sizes: list[int], num_samples: int, *_: Tensor) -> Tensor:
    return tables.new_empty((*tables.shape[:-1], num_samples, len(sizes)), dtype=int64)


def _fake_permutation(table: Tensor, num_samples: int, *_: Tensor) -> Tensor:
    return table.new_empty((*table.shape[:-2], num_samples, table.shape[-1]), dtype=int64)


def _fake_weights(fitness: Tensor, record: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return record.new_empty(fitness.shape, dtype=int64), record.new_empty(fitness.shape[:-1], dtype=int64)


_LIBRARY = Library(
    "discrete",
    sample_categorical=_fake_categorical,
    sample_permutation=_fake_permutation,
    rank_weights=_fake_weights,
    update_tables=lambda *given: given[3].new_empty(given[3].shape),
)
