"""Samples categorical variables and permutations.

The samples have the same bits on the CPU, on CUDA and in plain PyTorch.

Probabilities become integers, so that sums are exact in any order: w = round(2^48 p). Of 64
random bits r and u = floor(r sum(w) / 2^64), the index drawn is the number of prefix sums of w
that are at most u. Its probability differs from w_i / sum(w) by less than 2^-63, and is 0 where
w_i is. Where all w are 0, all are taken as 1. discrete.h says what r is: a function of (seed,
generation, candidate, variable or step) alone.
"""

import torch
from torch import Tensor

from kernels.ops.library import Library


def sample_categorical(
    table: Tensor,
    num_samples: int,
    *,
    seed: Tensor,
    generation: Tensor,
    dtype: torch.dtype = torch.int64,
) -> Tensor:
    """Draw independent categorical variables; the result has no gradients.

    A number depends neither on how many candidates there are, nor on the variables after it.

    Args:
        table: shape (..., V, K), 1 <= K < 32768, float64, in [0, 1]: the probabilities of the K
            categories of each of V variables. They are divided by their sum; probabilities
            below 2^-49 are 0.
        num_samples: N, 0 or more.
        seed: shape (...), int64.
        generation: shape (), int64, taken modulo 2**63.
        dtype: of the result: int64, float32 or float64.

    Returns:
        Indices of categories, shape (..., N, V).

    Raises:
        TypeError: a tensor has the wrong type.
        ValueError: a tensor has a wrong shape or device, or a number is out of range.
        kernels.BuildError: the operator has to be built, and cannot be.
    """
    result: Tensor = _LIBRARY.call(
        "sample_discrete", table, num_samples, seed, generation, dtype, False
    )
    return result


def sample_permutation(
    table: Tensor,
    num_samples: int,
    *,
    seed: Tensor,
    generation: Tensor,
    dtype: torch.dtype = torch.int64,
) -> Tensor:
    """Draw permutations item by item; the result has no gradients.

    Each step draws among the items left, by the row of the item before. P.-T. de Boer, D. P.
    Kroese, S. Mannor and R. Y. Rubinstein, A Tutorial on the Cross-Entropy Method, Annals of
    Operations Research 134, 2005, section 4: the travelling salesman, whose first town a row 0
    with one 1 fixes.

    Args:
        table: shape (..., n + 1, n), float64, 1 <= n < 32768: in row 0 the probabilities of the
            first item, in row 1 + i those of the item after item i. They are divided by the sum
            over the items left.
        num_samples: N; the rest of the arguments and the errors are those of
            ``sample_categorical``.
        seed: shape (...).
        generation: shape ().
        dtype: of the result.

    Returns:
        Indices of items, shape (..., N, n).
    """
    result: Tensor = _LIBRARY.call(
        "sample_discrete", table, num_samples, seed, generation, dtype, True
    )
    return result


def _fake_samples(
    table: Tensor, count: int, _: Tensor, __: Tensor, dtype: torch.dtype, is_permutation: bool
) -> Tensor:
    columns = table.shape[-1 if is_permutation else -2]
    return table.new_empty((*table.shape[:-2], count, columns), dtype=dtype)


def _fake_update(*arguments: Tensor) -> tuple[Tensor, ...]:
    """Return an unset state: tables, record and generation, the arguments from 2 to 4."""
    return tuple(x.new_empty(x.shape) for x in arguments[2:5])


_LIBRARY = Library(
    "discrete", {"sample_discrete": _fake_samples, "update_tables": _fake_update}
)
