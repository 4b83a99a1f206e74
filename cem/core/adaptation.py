"""What a search takes from CMA-ES beside ``cma_update``: the rates, the weights, and two more updates.

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

import torch
from torch import Tensor


class Rates(NamedTuple):
    """Learning rates, functions of d and mu_eff.

    Attributes:
        mu_eff: The effective number of elites.
        c_s: The rate of the step-size path.
        d_s: The damping of the step size.
        c_c: The rate of the covariance path.
        c_1: The rate of its rank-one update.
        c_mu: The rate of the rank-mu update.
        chi: The expected length of a standard normal vector.
    """

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


def all_weights(dim: int, population_size: int, elites: list[float], rates: Rates) -> list[float]:
    """Return the weights of all N candidates by rank: those of the elites, negative ones of the others."""
    count = len(elites)
    others = [math.log(count + 0.5) - math.log(rank) for rank in range(count + 1, population_size + 1)]
    if not others or rates.c_mu <= 0.0:
        return elites + [0.0] * len(others)
    scale = min(
        1 + rates.c_1 / rates.c_mu,
        1 + 2 * effective(others) / (rates.mu_eff + 2),
        max(0.0, (1 - rates.c_1 - rates.c_mu) / (dim * rates.c_mu)),
    )
    total = -math.fsum(others)
    return elites + [round(scale * weight / total, 12) for weight in others]


def with_paths(
    std: Tensor,
    candidates: Tensor,
    weights: Tensor,
    old_mean: Tensor,
    new_mean: Tensor,
    paths: Tensor,
    generation: Tensor,
    rates: Rates,
) -> tuple[Tensor, Tensor]:
    """Return the next variances of a diagonal covariance, shape (..., d), and the paths.

    All tensors are float64, with any leading batch dimensions.

    Args:
        std: Shape (..., d).
        candidates: In rank order, shape (..., N, d).
        weights: Their weights, shape (..., N).
        old_mean: mu_t, shape (..., d).
        new_mean: m, shape (..., d).
        paths: p and q, shape (..., 2, d).
        generation: t, shape ().
        rates: The learning rates.
    """
    step, y = new_mean - old_mean, candidates - old_mean.unsqueeze(-2)
    width = torch.where(std > 0, std, 1.0)  # 1: a dimension of no width
    lengths = (y / width.unsqueeze(-2)).square().sum(-1).clamp(min=torch.finfo(y.dtype).tiny)
    dim = step.shape[-1]
    bounded = torch.where(weights < 0, weights * dim / lengths, weights).unsqueeze(-1)
    p, q = paths.unbind(-2)
    p = (1 - rates.c_s) * p + math.sqrt(rates.c_s * (2 - rates.c_s) * rates.mu_eff) * (step / width)
    length = torch.linalg.vector_norm(p, dim=-1, keepdim=True)
    warm = 1 - (1 - rates.c_s) ** (2 * (generation + 1))
    h = (length.square() / warm < (2 + 4 / (dim + 1)) * dim).to(step.dtype)
    q = (1 - rates.c_c) * q + h * math.sqrt(rates.c_c * (2 - rates.c_c) * rates.mu_eff) * step
    ratio = torch.exp((rates.c_s / rates.d_s * (length / rates.chi - 1)).clamp(max=1.0))
    kept = 1 - rates.c_1 - rates.c_mu * weights.sum(-1, keepdim=True)
    kept = kept + rates.c_1 * (1 - h) * rates.c_c * (2 - rates.c_c)
    rank_mu = (bounded * y.square()).sum(-2)
    variances = ratio.square() * (kept * std.square() + rates.c_1 * q.square() + rates.c_mu * rank_mu)
    return variances, torch.stack([p, ratio * q], dim=-2)


def of_elites(
    factor: Tensor, elites: Tensor, weights: Tensor, old_mean: Tensor, variance_about: str
) -> Tensor:
    """Return the covariance of the elites, shape (..., d, d); all tensors float64.

    ``factor`` is L, shape (..., d, d). The elites have shape (..., K, d), their weights, of sum 1, (..., K).
    """
    centre = old_mean
    if variance_about != "old_mean":
        centre = (weights.unsqueeze(-1) * elites).sum(-2)
    y = elites - centre.unsqueeze(-2)
    found = (y * weights.unsqueeze(-1)).mT @ y
    if variance_about != "new_mean_unbiased":
        return found
    share = (1 - weights.square().sum(-1))[..., None, None]
    return torch.where(share > 0, found / share, factor @ factor.mT)


def factorised(covariance: Tensor, old: Tensor) -> Tensor:
    """Return L with L L^T = covariance, shape (..., d, d), float64; ``old`` where there is none.

    A matrix of too few elites is singular: a share of 1e-12 of each variance is added to the diagonal. A
    dimension of variance 0 keeps it.
    """
    variances = covariance.diagonal(dim1=-2, dim2=-1)
    ridge = 1e-12 * variances + torch.finfo(covariance.dtype).tiny
    factor, failed = torch.linalg.cholesky_ex(covariance + torch.diag_embed(ridge))
    good = (failed == 0) & factor.isfinite().all(-1).all(-1)
    factor = torch.where(variances.unsqueeze(-1) > 0, factor, 0.0)
    return torch.where(good[..., None, None], factor, old)
