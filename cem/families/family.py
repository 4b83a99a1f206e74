"""A family of discrete distributions: its columns of a candidate, and its table.

The parameters of a member are a table of probabilities in rows. `kernels/ops/discrete` has the operators that
draw from it and move it, and their equations.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Family(Protocol):
    """A family: a frozen value, the table of its first member, and functions of a table.

    A table has shape (..., rows * values), float64.
    """

    @property
    def columns(self) -> int:
        """The number of columns of a candidate."""

    @property
    def smoothing(self) -> float | None:
        """beta, the weight of a generation in (0, 1]; None: by the population."""

    @property
    def rows(self) -> tuple[int, int]:
        """The rows of the table, one per column or, of transitions, one more; and the values in each."""

    def start(self) -> Tensor:
        """Return the first table, on the CPU."""

    def mode(self, table: Tensor) -> Tensor:
        """Return the likeliest candidate, shape (..., columns)."""


def spread(family: Family, table: Tensor) -> Tensor:
    """Return for each row how probable it is that its value is not the likeliest, shape (..., rows)."""
    greatest: Tensor = table.unflatten(-1, family.rows).amax(-1)
    return 1 - greatest
