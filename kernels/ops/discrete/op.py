"""Samples categorical variables and permutations.

The samples have the same bits on the CPU, on CUDA and in plain PyTorch.

Probabilities p are converted to integers w = round(2^48 p), so that sums are exact in any
order. If all w are 0, they are replaced by 1. From an integer r of 64 random bits the sampler
computes u = floor(r sum(w) / 2^64). It draws the index i that is the number of prefix sums of w
that are at most u. The probability of i differs from w_i / sum(w) by less than 2^-63, and is 0
if w_i is 0. r is a function of seed, generation, candidate, and variable or step alone; see
discrete.h.
"""

import torch
from torch import Tensor

from kernels.ops.library import Library, needs_dispatch

_ROUNDING = 1e-6  # the largest excess of a probability over 1 that is no error


def sample_categorical(
    table: Tensor,
    num_samples: int,
    *,
    seed: Tensor,
    generation: Tensor,
    dtype: torch.dtype = torch.int64,
) -> Tensor:
    """Draw independent categorical variables. The result has no gradients.

    A sample does not depend on the number of samples, nor on the variables after it.

    Args:
        table: shape (..., V, K), 1 <= K < 32768, float64, in [0, 1]. Row v contains the
            probabilities of the K categories of variable v. They are divided by their sum.
            Probabilities below 2^-49 become 0.
        num_samples: N, 0 or more.
        seed: shape (...), int64.
        generation: shape (), int64, taken modulo 2**63.
        dtype: the dtype of the result: int64, float32 or float64.

    Returns:
        Indices of categories, shape (..., N, V).

    Raises:
        TypeError: a tensor has the wrong type.
        ValueError: a tensor has a wrong shape or device, or a number is out of range.
        kernels.BuildError: the operator is not built yet, and cannot be built.
    """
    _check_probabilities(table)
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
    """Draw permutations item by item. The result has no gradients.

    Each step draws one of the remaining items, with probabilities that depend on the item
    before. This is the travelling salesman of P.-T. de Boer, D. P. Kroese, S. Mannor and R. Y.
    Rubinstein, A Tutorial on the Cross-Entropy Method, Annals of Operations Research 134, 2005,
    section 4. A row 0 with a single 1 fixes the first town.

    Args:
        table: shape (..., n + 1, n), float64, 1 <= n < 32768. Row 0 contains the probabilities
            of the first item, and row 1 + i those of the item after item i. They are divided by
            the sum over the remaining items.
        num_samples: N. All further arguments and the errors are those of
            ``sample_categorical``.
        seed: shape (...).
        generation: shape ().
        dtype: the dtype of the result.

    Returns:
        Indices of items, shape (..., N, n).
    """
    _check_probabilities(table)
    result: Tensor = _LIBRARY.call(
        "sample_discrete", table, num_samples, seed, generation, dtype, True
    )
    return result


def _check_probabilities(table: Tensor) -> None:
    """Raise ValueError if a number on the CPU is no probability, except for rounding.

    Numbers on a GPU are not checked, because that would wait for it. Those of a call that is
    traced or transformed cannot be read.
    """
    # A class with a dispatch of its own, such as that of fake tensors, may have no numbers.
    has_numbers = type(table).__torch_dispatch__ is Tensor.__torch_dispatch__
    if not has_numbers or needs_dispatch() or table.is_cuda or table.is_meta:
        return
    if table.numel() == 0:
        return
    low, high = torch.aminmax(table.detach())
    if not (low >= 0.0 and high <= 1.0 + _ROUNDING):
        raise ValueError(
            f"expected probabilities in [0, 1], got {float(low):g} to {float(high):g}"
        )


def _fake_samples(
    table: Tensor, count: int, _: Tensor, __: Tensor, dtype: torch.dtype, is_permutation: bool
) -> Tensor:
    """Return uninitialised samples: one column per variable, or one per item."""
    columns = table.shape[-1 if is_permutation else -2]
    return table.new_empty((*table.shape[:-2], count, columns), dtype=dtype)


def _fake_update(*arguments: Tensor) -> tuple[Tensor, ...]:
    """Return an uninitialised state: tables, record and generation.

    They have the shapes of the arguments 2 to 4.
    """
    return tuple(x.new_empty(x.shape) for x in arguments[2:5])


_LIBRARY = Library(
    "discrete", {"sample_discrete": _fake_samples, "update_tables": _fake_update}
)
