"""A family of discrete distributions: what it takes of a candidate, its table, and how elites fit it.

The parameters of a member are a table of probabilities, and the fit is the weighted maximum likelihood, which
is a frequency, smoothed and kept from 0:

    p' = max((1 - beta) p + beta sum of w_k [x_k = value], floor)        over the elites, sum of w_k = 1

P.-T. de Boer, D. Kroese, S. Mannor and R. Rubinstein, A Tutorial on the Cross-Entropy Method, Annals of
Operations Research 134, 2005, sections 4 and 5. A probability of 0 stays 0: what is impossible at the start.
Frequencies are sums of integers, so their order is free, and draws compare integers: a seed has the same bits
on every device.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

_ONE = 1 << 40  # a weight of 1, as an integer


class Family(Protocol):
    """A family: a frozen value, the table of its first member, and functions of a table.

    A table has shape (..., size), float64: the probabilities in rows, that need not sum to 1.

    Attributes:
        columns: The columns of a candidate: their number, one number each.
        rows: The shape of the table: rows, and probabilities in each.
    """

    @property
    def columns(self) -> int: ...

    @property
    def rows(self) -> tuple[int, int]: ...

    def start(self) -> Tensor:
        """Return the first table, shape (size,), on the CPU."""

    def draw(self, table: Tensor, size: int, seed: Tensor, generation: Tensor, reference: bool) -> Tensor:
        """Return N candidates, shape (..., N, columns), integral; with plain PyTorch if ``reference``."""

    def counts(self, elites: Tensor, weights: Tensor) -> Tensor:
        """Return the sum of the weights, (..., K) int64, of the elites that have a value, like the table."""

    def mode(self, table: Tensor) -> Tensor:
        """Return the likeliest candidate, shape (..., columns)."""


def fitted(family: Family, table: Tensor, elites: Tensor, weights: Tensor) -> Tensor:
    """Return the table after a generation: elites by rank, (..., K, columns), weights (..., K) of sum 1."""
    found = family.counts(elites.long(), (weights * _ONE).round().long()).double() / _ONE
    rows, values = family.rows
    floor = (1 - 0.73 ** (1 / rows)) / max(1, values - 1)
    rate = learning_rate(weights, rows, values)
    moved = table + rate * (found - table)
    some = weights.sum(-1, keepdim=True) > 0
    return torch.where((table > 0) & some, moved.clamp(min=floor), table)


def learning_rate(weights: Tensor, rows: int, values: int) -> Any:
    """Return beta."""
    mu = 1 / weights.square().sum(-1, keepdim=True)
    return (mu / (mu + 2.0 * (rows * (values - 1)) ** 0.5)).clamp(max=0.7)


def spread(family: Family, table: Tensor) -> Tensor:
    """Return for each row how probable it is that its value is not the likeliest, shape (..., rows)."""
    p = table.unflatten(-1, family.rows)
    return 1 - p.amax(-1) / p.sum(-1)
