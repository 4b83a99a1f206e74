"""The parts of CMA-ES beside ``cma_update``: learning rates, weights, and a covariance.

``kernels.ops.cma_update.op`` has the equations of a full covariance with paths. A diagonal
covariance follows the same equations with a diagonal L, and learns (d + 2) / 3 times as fast:
R. Ros and N. Hansen, A Simple Modification in CMA-ES Achieving Linear Time and Space
Complexity, PPSN 2008. A full covariance without paths moves towards the covariance V of the
elites. V is computed about the old mean mu_t or about the elites' mean m:

    V = sum w_k y_k y_k^T             y_k = x_k - mu_t, or y_k = x_k - m
    Sigma' = Sigma + beta (V - Sigma) + Z_t I

Equation numbers are those of N. Hansen, The CMA Evolution Strategy: A Tutorial,
arXiv:1604.00772, 2023.
"""

import math
from typing import NamedTuple

from torch import Tensor

# Weights are rounded to this many digits, because the logarithms of C libraries differ in the
# last bit.
_DIGITS = 12


class Rates(NamedTuple):
    """Learning rates, with their names in the tutorial; see ``kernels.ops.cma_update.op``."""

    mu_eff: float
    c_s: float
    d_s: float
    c_c: float
    c_1: float
    c_mu: float
    chi: float


def rates(dim: int, weights: list[float], *, diagonal: bool) -> Rates:
    """Return the learning rates of CMA-ES for ``dim`` parameters.

    The numbers in brackets are the equations of Hansen's tutorial, arXiv:1604.00772.

    Args:
        dim: The number of parameters.
        weights: The weights of the elites. Only their ratios matter.
        diagonal: Whether the covariance is diagonal.
    """
    # The effective number of elites, (sum w)^2 / sum w^2.
    mu_eff = effective(weights)
    # (55): the learning rate of the step size's path.
    c_s = (mu_eff + 2) / (dim + mu_eff + 5)
    # (55): the damping of the step size.
    d_s = 1 + 2 * max(0.0, math.sqrt((mu_eff - 1) / (dim + 1)) - 1) + c_s
    # (56): the learning rate of the covariance's path.
    c_c = (4 + mu_eff / dim) / (dim + 4 + 2 * mu_eff / dim)
    # (57): the learning rate of the rank-one update, with alpha_cov = 2.
    c_1 = 2 / ((dim + 1.3) ** 2 + mu_eff)
    # (58): the learning rate of the rank-mu update.
    c_mu = 2 * (0.25 + mu_eff - 2 + 1 / mu_eff) / ((dim + 2) ** 2 + mu_eff)
    if diagonal:
        # A diagonal has fewer numbers to learn, so it can learn faster (Ros and Hansen, 2008).
        c_1 = c_1 * (dim + 2) / 3
        c_mu = c_mu * (dim + 2) / 3
    # 1 - c_1 - c_mu is the weight of the old covariance, which must not be negative.
    c_1 = min(c_1, 1.0)
    c_mu = min(1 - c_1, c_mu)
    # chi approximates the expected length of a vector from N(0, I).
    chi = math.sqrt(dim) * (1 - 1 / (4 * dim) + 1 / (21 * dim * dim))
    return Rates(mu_eff, c_s, d_s, c_c, c_1, c_mu, chi)


def effective(weights: list[float]) -> float:
    """Return the effective number of candidates, (sum w)^2 / sum w^2: equation (8)."""
    return math.fsum(weights) ** 2 / math.fsum(w * w for w in weights)


def rank_weights(num_elites: int, kind: str) -> list[float]:
    """Return the elites' weights by rank, whose sum is 1; ``kind`` is "equal" or "log"."""
    raw = [1.0] * num_elites
    if kind == "log":
        raw = [_log_weight(num_elites, rank) for rank in range(1, num_elites + 1)]
    total = math.fsum(raw)
    return [round(weight / total, _DIGITS) for weight in raw]


def all_weights(
    dim: int,
    population_size: int,
    elites: list[float],
    rates: Rates,
) -> list[float]:
    """Return the weights of all N candidates from best to worst.

    Elites have positive weights, and the other candidates negative ones. They are the weights
    w_i of active CMA-ES. The numbers in brackets are equations of Hansen's tutorial,
    arXiv:1604.00772.

    Args:
        dim: The number of parameters.
        population_size: N.
        elites: The weights of the elites.
        rates: The learning rates of the search.
    """
    num_elites = len(elites)
    other_ranks = range(num_elites + 1, population_size + 1)
    negative = [_log_weight(num_elites, rank) for rank in other_ranks]
    # Without a rank-mu update the negative weights are not used.
    if not negative or rates.c_mu <= 0.0:
        return elites + [0.0] * len(negative)
    # (53): the negative weights are scaled so that their sum is minus the smallest of three
    # limits, alpha_mu, alpha_mu_eff and alpha_posdef.
    # (50): with this sum the old covariance does not decay.
    alpha_mu = 1 + rates.c_1 / rates.c_mu
    # (51): the fewer the effective negative weights are, the smaller is the sum.
    alpha_mu_eff = 1 + 2 * effective(negative) / (rates.mu_eff + 2)
    # (52): up to this sum the covariance remains positive definite.
    alpha_posdef = max(0.0, (1 - rates.c_1 - rates.c_mu) / (dim * rates.c_mu))
    scale = min(alpha_mu, alpha_mu_eff, alpha_posdef)
    # Divided by this total, the negative weights sum to -1.
    total = -math.fsum(negative)
    scaled = [round(scale * weight / total, _DIGITS) for weight in negative]
    return elites + scaled


def _log_weight(num_elites: int, rank: int) -> float:
    """Return the logarithmic weight of a rank from 1; it is negative after the elites."""
    return math.log(num_elites + 0.5) - math.log(rank)


def elite_covariance(
    elites: Tensor,
    weights: Tensor,
    old_mean: Tensor,
    variance_about: str,
) -> Tensor:
    """Return the covariance V of the elites, shape (..., d, d).

    ``elites`` (..., K, d) and ``weights`` (..., K) are float64. The weights sum to 1.
    """
    centre = old_mean
    if variance_about != "old_mean":
        centre = (weights.unsqueeze(-1) * elites).sum(-2)
    # The deviations of the elites from the centre, shape (..., K, d).
    y = elites - centre.unsqueeze(-2)
    return (y * weights.unsqueeze(-1)).mT @ y
