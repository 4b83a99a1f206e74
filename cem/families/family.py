"""A family of discrete distributions: its columns of a candidate, its table, how it draws and how it moves.

The parameters of a member are a table of numbers in rows. ``Categorical`` and ``Permutation`` draw and move
by the operators of `kernels/ops/discrete`, which has their equations; docs/spaces.md writes another family.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from kernels.ops.discrete.reference import random_words
from kernels.ops.discrete.tables import move_table as move_table


class Family(Protocol):
    """A family: a frozen value, the table of its first member, and functions of a table.

    A table has shape (..., rows * values), float64; leading dimensions are problems side by side. The methods
    are PyTorch on any device; in a CUDA graph, or under ``torch.compile``, without branches on values.
    """

    @property
    def columns(self) -> int:
        """The number of columns of a candidate."""

    @property
    def rows(self) -> tuple[int, int]:
        """The rows of the table, and the values in each."""

    def start(self) -> Tensor:
        """Return the first table, shape (rows * values,), on the CPU."""

    def mode(self, table: Tensor) -> Tensor:
        """Return the likeliest candidate, shape (..., columns)."""

    def spread(self, table: Tensor) -> Tensor:
        """Return for each column how far it is from certain, shape (..., columns); 0 where it is."""

    def sample(
        self,
        table: Tensor,
        size: int,
        *,
        seed: Tensor,
        generation: Tensor,
        dtype: torch.dtype,
        backend: str,
    ) -> Tensor:
        """Return candidates, whole numbers of any dtype, shape (..., size, columns).

        They are a function of seed, shape (...), int64, and generation, shape (), int64, as ``uniforms`` is,
        and the first ones do not depend on the size. ``dtype`` is that of the search. Its ``backend`` is
        "torch" where no operator is to be used.
        """

    def update(self, table: Tensor, candidates: Tensor, weights: Tensor) -> Tensor:
        """Return the next table of candidates, shape (..., N, columns), int64.

        The weights, shape (..., N), float64, are by rank: those of the better half sum to 1, those of the
        worse half mirror them. Where every candidate has failed the table stays, whatever this returns.
        """


def uniforms(seed: Tensor, generation: Tensor, size: int, count: int) -> Tensor:
    """Return numbers in [0, 1), float64, shape (..., size, count): the same on every processor.

    A number depends neither on the size nor on the count.
    """
    words = random_words(seed, generation, size, count, 0)
    return (words >> 11 & (1 << 53) - 1).double() * 2.0**-53


def spread_of_rows(table: Tensor, rows: tuple[int, int]) -> Tensor:
    """Return for each row how probable it is that its value is not the likeliest, shape (..., rows)."""
    greatest: Tensor = table.unflatten(-1, rows).amax(-1)
    return 1 - greatest
