"""The update of the cross-entropy method in plain PyTorch: what ``cem_update`` computes, for any device.

It needs no compiler, waits for no device, and works under ``torch.compile`` and ``torch.func.vmap``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

RESIDUES = 32
CHUNK = 512
VARIANCES = {"new_mean": 0, "new_mean_unbiased": 1, "old_mean": 2}
"""What the variance is about, and the number by which the operator knows it."""


@torch.no_grad()
def cem_update_reference(
    fitness: Tensor,
    candidates: Tensor,
    distribution: Tensor,
    record: Tensor,
    generation: Tensor,
    num_elites: int,
    *,
    maximize: bool,
    extra_variance: Tensor | None = None,
    weights: Tensor | None = None,
    std_floor: Tensor | None = None,
    variance_about: str = "new_mean",
    smoothing: float = 1.0,
    std_smoothing: float = 1.0,
    mean_averaging: float = 0.0,
    ranked: bool = True,
    fixed_order: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what ``cem_update`` returns, in plain PyTorch.

    On a CPU the results are those of the operator bit for bit: the sums are added in the same order. Where
    ``torch.sqrt`` does not round as IEEE 754 demands, std alone differs, by a unit in the last place of
    float64. Without ``fixed_order`` torch adds the sums as it likes, in fewer steps, and elites are ranked in
    any case. The other arguments are those of ``cem_update``; nothing is checked.
    """
    scores, order = (x[..., :num_elites] for x in ranking(fitness, maximize))
    scores = scores.double()
    # Of each elite by rank, and of each by index: what failed is last in both orders.
    live = scores > -math.inf if maximize else scores < math.inf
    count, some = live.sum(-1, keepdim=True), live[..., :1]
    scores = torch.where(live, scores, math.nan)
    total_score = scores.nan_to_num(0.0, math.inf, -math.inf)[..., None]
    by_rank = weight = (live.double() if weights is None else weights * live)[..., None]
    index = order
    if fixed_order:
        # The elites in index order, behind them what failed: `places` holds the rank of each.
        places = torch.sort(torch.where(live, order, order + fitness.shape[-1])).indices
        index = order.gather(-1, places)
        total_score, weight = (column.gather(-2, places[..., None]) for column in (total_score, by_rank))
    elites = rows_of(candidates, index)
    top = rows_of(candidates, order[..., :1]) if fixed_order else elites[..., :1, :]
    base = top.double()
    x = torch.where(live[..., None], elites - base, 0.0)
    weighted = weight * x
    terms = [weighted, weighted * x, total_score, by_rank]
    if variance_about == "new_mean_unbiased":
        terms.append(by_rank * by_rank)
    columns = torch.cat(terms, -1)
    sums = _ordered_sum(columns) if fixed_order else columns.sum(-2)
    first, second, total_score, total, *squares = sums.split([term.shape[-1] for term in terms], -1)

    mean, std, averaged, _ = distribution.double().unbind(-2)
    share = total.reciprocal()
    offset = first * share
    new_mean = base[..., 0, :] + offset
    variance = (second * share - offset * offset).clamp(min=0.0)
    if squares:
        scale = 1.0 - squares[0] / (total * total)
        variance = torch.where(scale > 0.0, variance * (1.0 / scale), std * std)
    elif variance_about == "old_mean":
        step = new_mean - mean
        variance = variance + step * step
    if extra_variance is not None:
        variance = variance + of_generation(extra_variance, generation)
    # False where one is NaN, as all are without a usable candidate: their weights sum to 0.
    changed = torch.maximum(new_mean.abs(), variance) < math.inf

    new_std = variance.sqrt()
    if smoothing != 1.0:
        new_mean = mean + smoothing * (new_mean - mean)
    if std_smoothing != 1.0:
        new_std = std + std_smoothing * (new_std - std)
    if std_floor is not None:
        new_std = torch.maximum(new_std, std_floor)
    moved = new_mean
    if mean_averaging != 0.0:
        newest = 1.0 / (1.0 + mean_averaging * generation.double())
        moved = torch.where(newest == 1.0, new_mean, averaged + (new_mean - averaged) * newest)

    (known, _, failed), top_score = record.split([1, 3, 1], -1), scores[..., :1]
    best_score = torch.fmax(known, top_score) if maximize else torch.fmin(known, top_score)  # NaN loses
    better = some & (best_score != known)
    old, best = distribution.split([3, 1], -2)
    marginals = rounded(torch.stack([new_mean, new_std, moved], -2), old.dtype)
    marginals = torch.where(changed[..., None, :], marginals, old)
    best = torch.where(better[..., None], top, best)
    threshold = scores.gather(-1, (count - 1).clamp(min=0))
    after = generation + 1
    figures = [best_score, top_score, total_score / count, threshold, torch.where(some, failed, after)]
    new_distribution, new_record = torch.cat([marginals, best], -2), torch.cat(figures, -1)
    return new_distribution, new_record, after, order if ranked else index


def of_generation(extra_variance: Tensor, generation: Tensor) -> Tensor:
    """Return the extra variance of a generation, shape (1,): from the last one on it stays."""
    last = generation.clamp(0, extra_variance.shape[0] - 1)
    return extra_variance.index_select(0, last.reshape(1))


def ranking(fitness: Tensor, maximize: bool) -> tuple[Tensor, Tensor]:
    """Return the fitness, best first and stable, and all indices; what failed is infinite and comes last."""
    if fitness.is_floating_point():
        worst = -math.inf if maximize else math.inf
        fitness = fitness.nan_to_num(worst, math.inf, -math.inf) + 0.0  # -0 becomes 0
    return torch.sort(fitness, stable=True, descending=maximize)


def rows_of(candidates: Tensor, index: Tensor) -> Tensor:
    """Return rows of (..., N, d) by indices (..., K): (..., K, d)."""
    if candidates.dim() == 2:
        return candidates.index_select(0, index)
    return candidates.gather(-2, index[..., None].expand(*index.shape, candidates.shape[-1]))


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor of another dtype: what is too large becomes the largest number."""
    largest = torch.finfo(dtype).max
    return x.clamp(-largest, largest).to(dtype)


def _ordered_sum(x: Tensor) -> Tensor:
    """Return the sums of a tensor (..., K, m) over K, (..., m), in the operator's order.

    Chunks of 512 are added each for itself, and then their sums, both as ``_folded`` does it.
    """
    if x.shape[-2] > CHUNK:
        x = _folded(pad(x, (0, 0, 0, -x.shape[-2] % CHUNK)).unflatten(-2, (-1, CHUNK)))
    return _folded(x)


def _folded(x: Tensor) -> Tensor:
    """Return the sum over the last dimension but one: 32 residue classes, each in order, then as a tree."""
    x = pad(x, (0, 0, 0, -x.shape[-2] % RESIDUES)).unflatten(-2, (-1, RESIDUES))
    partial = x[..., 0, :, :] + 0.0
    for row in range(1, x.shape[-3]):
        partial = partial + x[..., row, :, :]
    half = RESIDUES // 2
    while half:
        partial = partial[..., :half, :] + partial[..., half:, :]
        half //= 2
    return partial[..., 0, :]
