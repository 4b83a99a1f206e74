"""A family of discrete distributions: the columns of a candidate that it draws, its table, and how it moves.

The parameters of a member are a table of probabilities in rows. A generation moves it by

    p' = max(p + beta sum of w_k [x_k = value], floor) / sum of its row        over all candidates by rank k

    w_k  = log(N / 2 + 1/2) - log k for the better half, of sum 1; those of the worse half mirror them
    beta = mu / (mu + 2 sqrt(rows (values - 1))), at most 0.7            with mu = 1 / sum of w_k^2, w_k > 0

The positive part is the smoothed maximum likelihood of weighted elites (P.-T. de Boer, D. Kroese, S. Mannor
and R. Rubinstein, A Tutorial on the Cross-Entropy Method, Annals of Operations Research 134, 2005, sections 4
and 5); as in CMA-ES worse candidates push away. Candidates of equal fitness have the mean of their weights.
A probability of 0 stays 0: what is impossible at the start. Others stay above a floor, by which one row in
three generations is expected to have another than its likeliest value: R. Hamano et al., CatCMA: Stochastic
Optimization for Mixed-Category Problems, GECCO 2024.

Probabilities are multiples of 2^-40 and weights integers: sums are exact in any order, and a seed has the
same bits on every device.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

_ONE = 1 << 40


class Family(Protocol):
    """A family: a frozen value, the table of its first member, and functions of a table.

    A table has shape (..., rows * values), float64.
    """

    @property
    def columns(self) -> int:
        """The number of columns of a candidate."""

    @property
    def rows(self) -> tuple[int, int]:
        """The rows of the table, and the values in each."""

    def start(self) -> Tensor:
        """Return the first table, on the CPU."""

    def draw(self, table: Tensor, size: int, seed: Tensor, generation: Tensor, reference: bool) -> Tensor:
        """Return N candidates, shape (..., N, columns), integral; by plain PyTorch if ``reference``."""

    def cells(self, x: Tensor) -> Tensor:
        """Return the cells of the table that candidates, (..., N, columns) int64, have; the same shape."""

    def mode(self, table: Tensor) -> Tensor:
        """Return the likeliest candidate, shape (..., columns)."""


def moved(family: Family, table: Tensor, x: Tensor, weights: Tensor) -> Tensor:
    """Return the next table by candidates, (..., N, columns), and weights, (..., N), of ``rank_weights``."""
    rows, values = family.rows
    mu = effective_size(x.shape[-2])
    rate = min(0.7, mu / (mu + 2 * math.sqrt(rows * (values - 1))))
    floor = (1 - 0.73 ** (1 / rows)) / max(1, values - 1)
    weights = weights.unsqueeze(-1).expand(x.shape).flatten(-2)
    sums = torch.zeros_like(table, dtype=torch.int64).scatter_add(
        -1, family.cells(x.long()).flatten(-2), weights
    )
    p = table + (sums * rate).round() / _ONE
    p = torch.where(table > 0, p.clamp(min=round(floor * _ONE) / _ONE), 0.0).unflatten(-1, family.rows)
    normalised: Tensor = ((p / p.sum(-1, keepdim=True)) * _ONE).round().flatten(-2) / _ONE
    return normalised


def rank_weights(fitness: Tensor, maximize: bool) -> Tensor:
    """Return the weights of candidates, (..., N) int64, by their fitness."""
    scores = -fitness.double() if maximize else fitness.double()
    scores = scores.nan_to_num(math.inf, math.inf, -math.inf)
    ordered = scores.sort(dim=-1).values
    sums = _sums(fitness.shape[-1], fitness.device).expand(*fitness.shape[:-1], -1)
    first, last = (torch.searchsorted(ordered, scores, right=right) for right in (False, True))
    return (sums.gather(-1, last) - sums.gather(-1, first)) // (last - first)


@lru_cache(maxsize=64)
def _sums(size: int, device: torch.device) -> Tensor:
    """Return the sums of the weights of the best 0 .. N candidates."""
    half = _better(size)
    total = math.fsum(half)
    weights = [round(weight / total * _ONE) for weight in half]
    weights += [0] * (size % 2) + [-weight for weight in reversed(weights)]
    return torch.tensor([0, *weights]).cumsum(0).to(device)


def _better(size: int) -> list[float]:
    return [math.log(size / 2 + 0.5) - math.log(rank) for rank in range(1, size // 2 + 1)]


def effective_size(size: int) -> float:
    """Return mu of a population."""
    half = _better(size)
    return math.fsum(half) ** 2 / math.fsum(weight * weight for weight in half)


def spread(family: Family, table: Tensor) -> Tensor:
    """Return for each row how probable it is that its value is not the likeliest, shape (..., rows)."""
    return torch.sub(1, table.unflatten(-1, family.rows).amax(-1))
