"""What a search takes from CMA-ES beside ``cma_update``: rates, weights, and a covariance without paths.

``kernels.ops.cma_update.op`` has the equations of a full covariance with paths. A diagonal one has the same
with a diagonal L, and learns (d + 2) / 3 times as fast: R. Ros and N. Hansen, A Simple Modification in CMA-ES
Achieving Linear Time and Space Complexity, PPSN 2008. A full covariance without paths moves to that of the
elites, V, about mu_t or about the elites' mean:

    V = sum w_k y_k y_k^T             y_k = x_k - mu_t, or y_k = x_k - m
    Sigma' = Sigma + beta (V - Sigma) + Z_t I

The rates are those of N. Hansen, The CMA Evolution Strategy: A Tutorial, arXiv:1604.00772, 2023, table 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

_DIGITS = 12  # of a weight: the logarithms of C libraries differ in the last bit


class Rates(NamedTuple):
    """Learning rates by their names in the tutorial; ``kernels.ops.cma_update.op`` has what each is for."""

    mu_eff: float
    c_s: float
    d_s: float
    c_c: float
    c_1: float
    c_mu: float
    chi: float


def rates(dim: int, weights: list[float], *, diagonal: bool) -> Rates:
    """Return the rates of a search of d = ``dim`` parameters by the weights of its elites, of any sum."""
    mu = effective(weights)
    c_s = (mu + 2) / (dim + mu + 5)
    c_1 = 2 / ((dim + 1.3) ** 2 + mu)
    c_mu = 2 * (0.25 + mu - 2 + 1 / mu) / ((dim + 2) ** 2 + mu)
    if diagonal:
        c_1, c_mu = c_1 * (dim + 2) / 3, c_mu * (dim + 2) / 3
    c_1 = min(c_1, 1.0)
    return Rates(
        mu_eff=mu,
        c_s=c_s,
        d_s=1 + 2 * max(0.0, math.sqrt((mu - 1) / (dim + 1)) - 1) + c_s,
        c_c=(4 + mu / dim) / (dim + 4 + 2 * mu / dim),
        c_1=c_1,
        c_mu=min(1 - c_1, c_mu),
        chi=math.sqrt(dim) * (1 - 1 / (4 * dim) + 1 / (21 * dim * dim)),
    )


def effective(weights: list[float]) -> float:
    """Return the effective number of candidates, (sum w)^2 / sum w^2."""
    return math.fsum(weights) ** 2 / math.fsum(w * w for w in weights)


def rank_weights(num_elites: int, kind: str) -> list[float]:
    """Return the weights of the elites by rank, ``"equal"`` or ``"log"``, of sum 1."""
    raw = [1.0] * num_elites
    if kind == "log":
        raw = [_log_weight(num_elites, rank) for rank in range(1, num_elites + 1)]
    total = math.fsum(raw)
    return [round(weight / total, _DIGITS) for weight in raw]


def all_weights(dim: int, population_size: int, elites: list[float], rates: Rates) -> list[float]:
    """Return the weights of all N candidates by rank: those of the elites, negative ones of the others."""
    count = len(elites)
    others = [_log_weight(count, rank) for rank in range(count + 1, population_size + 1)]
    if not others or rates.c_mu <= 0.0:
        return elites + [0.0] * len(others)
    scale = min(
        1 + rates.c_1 / rates.c_mu,
        1 + 2 * effective(others) / (rates.mu_eff + 2),
        max(0.0, (1 - rates.c_1 - rates.c_mu) / (dim * rates.c_mu)),
    )
    total = -math.fsum(others)
    return elites + [round(scale * weight / total, _DIGITS) for weight in others]


def _log_weight(num_elites: int, rank: int) -> float:
    return math.log(num_elites + 0.5) - math.log(rank)


def of_elites(elites: Tensor, weights: Tensor, old_mean: Tensor, variance_about: str) -> Tensor:
    """Return the covariance of the elites, (..., K, d), weights of sum 1; (..., d, d), all float64."""
    centre = old_mean
    if variance_about != "old_mean":
        centre = (weights.unsqueeze(-1) * elites).sum(-2)
    y = elites - centre.unsqueeze(-2)
    return (y * weights.unsqueeze(-1)).mT @ y
