"""The update of CMA-ES in plain PyTorch, for any device and size.

It returns what ``cma_update`` returns, up to rounding. It needs no compiler, never waits for a
device, and works under ``torch.compile`` and ``torch.func.vmap``.
"""

import math

import torch
from torch import Tensor

from kernels.ops.cem_update.reference import (
    cem_update_reference,
    rank_candidates,
    round_to,
    select_rows,
    variance_of_generation,
)

Rates = tuple[float, ...]
_TINY = torch.finfo(torch.float64).tiny


@torch.no_grad()
def cma_update_reference(  # noqa: PLR0913 - the state and the settings of an update
    fitness: Tensor,
    candidates: Tensor,
    distribution: Tensor,
    record: Tensor,
    generation: Tensor,
    factor: Tensor,
    paths: Tensor,
    num_elites: int,
    *,
    maximize: bool,
    rates: Rates,
    weights: Tensor,
    extra_variance: Tensor | None = None,
    std_floor: Tensor | None = None,
    smoothing: float = 1.0,
    mean_averaging: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return what ``cma_update`` returns, in plain PyTorch. The arguments are not checked."""
    # The mean, the averaged mean, the best candidate and the record change as in CEM.
    new, new_record, new_generation, elites = cem_update_reference(
        fitness,
        candidates,
        distribution,
        record,
        generation,
        num_elites,
        maximize=maximize,
        extra_variance=extra_variance,
        weights=weights[:num_elites],
        std_floor=std_floor,
        variance_about="old_mean",
        smoothing=smoothing,
        mean_averaging=mean_averaging,
        fixed_order=False,
    )
    rows, weights, is_failed = rank_rows(fitness, candidates, weights, maximize)
    mean = distribution[..., 0, :].double()
    new_mean = new[..., 0, :].double()
    covariance, new_paths = adapt_covariance(
        factor.double(), rows, weights, mean, new_mean, paths.double(), generation, rates
    )
    variances = covariance.diagonal(dim1=-2, dim2=-1)
    added = extra_variances(variances, generation, extra_variance, std_floor)
    new_factor, is_factorised = factorise(covariance + torch.diag_embed(added))

    def replace(where: Tensor, x: Tensor, old: Tensor) -> Tensor:
        return torch.where(where, round_to(x, old.dtype), old)

    any_usable = ~is_failed.all(-1, keepdim=True)
    is_updated = is_factorised.unsqueeze(-1) & any_usable
    # A dimension's standard deviation is the length of its row in the factor.
    std = new_factor.square().sum(-1).sqrt()
    std = replace(is_updated, std, distribution[..., 1, :])
    new = torch.cat([new[..., :1, :], std.unsqueeze(-2), new[..., 2:, :]], dim=-2)
    new_factor = replace(is_updated.unsqueeze(-1), new_factor, factor)
    is_finite = any_usable.unsqueeze(-1) & new_paths.isfinite()
    new_paths = replace(is_finite, new_paths, paths)
    return new, new_record, new_generation, new_factor, new_paths, elites


def rank_rows(
    fitness: Tensor, candidates: Tensor, weights: Tensor, maximize: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best candidates in rank order, their weights, and whether they failed.

    The candidates and the weights are float64. There are as many candidates as weights.
    Candidates that failed come last, as rows of zeros with weight 0.
    """
    all_scores, all_order = rank_candidates(fitness, maximize)
    scores = all_scores[..., : len(weights)]
    order = all_order[..., : len(weights)]
    failed = scores == (-math.inf if maximize else math.inf)
    rows = torch.where(failed.unsqueeze(-1), 0.0, select_rows(candidates, order).double())
    return rows, torch.where(failed, 0.0, weights), failed


def adapt_covariance(
    scale: Tensor,
    rows: Tensor,
    weights: Tensor,
    mean: Tensor,
    moved: Tensor,
    paths: Tensor,
    generation: Tensor,
    rates: Rates,
) -> tuple[Tensor, Tensor]:
    """Return the next covariance, or the next variances if it is diagonal, and the next paths.

    All tensors are float64; leading dimensions ``...`` are independent problems.

    Args:
        scale: the standard deviations, shape (..., d), or the factor of the covariance, shape
            (..., d, d).
        rows: the candidates in rank order, shape (..., N, d).
        weights: the weights of the rows.
        mean: the mean before this generation, shape (..., d).
        moved: the mean after this generation, shape (..., d).
        paths: the evolution paths of step size and covariance, shape (..., 2, d).
        generation: the number of generations before this one.
        rates: mu_eff, c_s, d_s, c_c, c_1, c_mu and chi, as ``cma_update`` takes them.
    """
    mu_eff, c_s, d_s, c_c, c_1, c_mu, chi = rates
    # Names and equation numbers are those of Hansen's tutorial, arXiv:1604.00772. Its step size
    # sigma is part of the scale here.
    step = moved - mean
    y = rows - mean.unsqueeze(-2)
    dim = mean.shape[-1]
    is_diagonal = scale.dim() == mean.dim()

    # Divide by the standard deviations, or multiply by L^-1. They are divisors, so a standard
    # deviation of 0 is replaced by 1.
    if is_diagonal:
        width = torch.where(scale > 0, scale, 1.0)
        squared_lengths = (y / width.unsqueeze(-2)).square().sum(-1)
        white_step = step / width
    else:
        is_zero = (scale.diagonal(dim1=-2, dim2=-1) == 0).to(scale.dtype)
        factor = scale + torch.diag_embed(is_zero)
        # Solve for all candidates and the step at once: the step is the last row of `white`.
        columns = torch.cat([y, step.unsqueeze(-2)], dim=-2).mT
        white = torch.linalg.solve_triangular(factor, columns, upper=False).mT
        squared_lengths = white[..., :-1, :].square().sum(-1)
        white_step = white[..., -1, :]

    # (46): the farther away a candidate with a negative weight is, the less it counts.
    limited = weights * dim / squared_lengths.clamp(min=_TINY)
    candidate_weights = torch.where(weights < 0, limited, weights).unsqueeze(-1)

    p_sigma, p_c = paths.unbind(-2)
    # (43): the path of the step size.
    p_sigma = (1 - c_s) * p_sigma + math.sqrt(c_s * (2 - c_s) * mu_eff) * white_step
    length = torch.linalg.vector_norm(p_sigma, dim=-1, keepdim=True)
    # h_sigma is 0 if the path is so long that the step size grows fast; p_c then only decays.
    bias = 1 - (1 - c_s) ** (2 * (generation + 1))
    h_sigma = (length.square() / bias < (2 + 4 / (dim + 1)) * dim).to(step.dtype)

    # (45): the path of the covariance.
    p_c = (1 - c_c) * p_c + h_sigma * math.sqrt(c_c * (2 - c_c) * mu_eff) * step
    # (44): the new step size divided by the old one.
    ratio = torch.exp((c_s / d_s * (length / chi - 1)).clamp(max=1.0))

    # (47): the fraction of the old covariance that is retained, and the terms that are added.
    retained = (
        1 - c_1 - c_mu * weights.sum(-1, keepdim=True) + c_1 * (1 - h_sigma) * c_c * (2 - c_c)
    )
    new_paths = torch.stack([p_sigma, ratio * p_c], dim=-2)

    if is_diagonal:
        rank_mu = (candidate_weights * y.square()).sum(-2)
        variances = retained * scale.square() + c_1 * p_c.square() + c_mu * rank_mu
        return ratio.square() * variances, new_paths
    rank_mu = (y * candidate_weights).mT @ y
    covariance = retained.unsqueeze(-1) * (scale @ scale.mT) + c_mu * rank_mu
    covariance = covariance + c_1 * p_c.unsqueeze(-1) * p_c.unsqueeze(-2)
    return ratio.square().unsqueeze(-1) * covariance, new_paths


def extra_variances(
    variances: Tensor,
    generation: Tensor,
    extra_variance: Tensor | None,
    std_floor: Tensor | None,
) -> Tensor:
    """Return what must be added to the variances of an update, shape (..., d), float64.

    The noisy cross-entropy method adds a variance that depends on the generation. If a standard
    deviation would still be below its floor, more is added.

    Args:
        variances: the diagonal of the covariance after the update, shape (..., d), float64.
        generation: shape (), int64.
        extra_variance: the variance to add in each generation, shape (T,), or None for 0.
        std_floor: the lowest standard deviations, shape (..., d) or (d,), or None.
    """
    added = torch.zeros_like(variances)
    if extra_variance is not None:
        added = added + variance_of_generation(extra_variance, generation)
    if std_floor is not None:
        missing = std_floor.double().square() - variances
        added = torch.maximum(added, missing)
    return added


def factorise(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Cholesky factor of a covariance, and whether it exists.

    The factor has shape (..., d, d), float64, and the flag shape (...). With too few elites the
    covariance is singular, so 1e-12 times each variance is added to the diagonal. A dimension
    of variance 0 has a row of zeros.
    """
    variances = covariance.diagonal(dim1=-2, dim2=-1)
    factor, info = torch.linalg.cholesky_ex(
        covariance + torch.diag_embed(1e-12 * variances + _TINY)
    )
    exists = (info == 0) & factor.isfinite().all(-1).all(-1)
    return torch.where(variances.unsqueeze(-1) > 0, factor, 0.0), exists
