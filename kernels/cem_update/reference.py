"""The update of the cross-entropy method in plain PyTorch: what ``cem_update`` computes, for any device.

It needs no compiler, waits for no device, and works under ``torch.compile`` and ``torch.func.vmap``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

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
    """Returns what ``cem_update`` returns, in plain PyTorch.

    On a CPU the results are those of the operator bit for bit: the sums are added in the same order. Where
    ``torch.sqrt`` does not round as IEEE 754 demands, std alone differs, by a unit in the last place of
    float64. Without ``fixed_order`` torch adds the sums as it likes, in fewer steps, and elites are ranked in
    any case. The other arguments are those of ``cem_update``; nothing is checked.
    """
    population = fitness.shape[-1]
    order, failed = _ranking(fitness, maximize)
    order = order[..., :num_elites]
    rank = torch.arange(num_elites, device=fitness.device)
    count = (population - failed.sum(-1, keepdim=True)).clamp(max=num_elites)
    usable = count > 0
    places, index = rank, order
    if fixed_order:
        # The elites in index order, behind them what failed: `places` holds the rank of each.
        places = torch.sort(torch.where(rank < count, order, order + population)).indices
        index = order.gather(-1, places)
    add = _ordered_sum if fixed_order else _sum
    live = (rank < count)[..., None]

    top = _rows(candidates, order[..., :1])
    base = top.double()[..., 0, :]
    x = torch.where(live, _rows(candidates, index).double() - base[..., None, :], 0.0)
    told = torch.where(live, fitness.gather(-1, index).double()[..., None], 0.0)
    if weights is None:
        first, second, told = add(x, x * x, told)
        total = squares = count.double()
    else:
        weight = torch.where(live, weights[places][..., None], 0.0)
        weighted = weight * x
        ordered = torch.where(rank < count, weights, 0.0)[..., None]  # by rank
        first, second, told, total, squares = add(weighted, weighted * x, told, ordered, ordered * ordered)

    mean, std, averaged, best = distribution.unbind(-2)
    share = 1.0 / total
    offset = first * share
    new_mean = base + offset
    variance = second * share - offset * offset
    variance = torch.where(variance < 0.0, 0.0, variance)
    if variance_about == "new_mean_unbiased":
        scale = 1.0 - squares / (total * total)
        variance = torch.where(scale > 0.0, variance * (1.0 / scale), std.double() * std.double())
    elif variance_about == "old_mean":
        step = new_mean - mean.double()
        variance = variance + step * step
    t = generation.double()
    if extra_variance is not None:
        last = generation.clamp(0, extra_variance.shape[0] - 1)
        variance = variance + extra_variance.index_select(0, last.reshape(1))
    changed = usable & new_mean.isfinite() & variance.isfinite()

    new_std = variance.sqrt()
    if smoothing != 1.0:
        new_mean = mean.double() + smoothing * (new_mean - mean.double())
    if std_smoothing != 1.0:
        new_std = std.double() + std_smoothing * (new_std - std.double())
    if std_floor is not None:
        new_std = torch.where(new_std < std_floor.double(), std_floor.double(), new_std)
    newest = 1.0 / (1.0 + mean_averaging * t)
    moved = averaged.double() + (new_mean - averaged.double()) * newest
    moved = torch.where(newest == 1.0, new_mean, moved)

    scores = fitness.gather(-1, order).double() + 0.0
    top_score = scores[..., :1]
    known = record[..., :1]
    better = usable & ~((known >= top_score) if maximize else (known <= top_score))
    rows = [
        torch.where(changed, _rounded(new, distribution.dtype), old)
        for new, old in ((new_mean, mean), (new_std, std), (moved, averaged))
    ]
    rows.append(torch.where(better, top[..., 0, :], best))

    threshold = scores.gather(-1, (count - 1).clamp(min=0))
    of_generation = torch.cat([top_score, told / count.double(), threshold], -1)
    of_generation = torch.where(usable, of_generation, math.nan)
    refused = torch.where(usable, record[..., 4:5], t + 1.0)
    new_record = torch.cat([torch.where(better, top_score, known), of_generation, refused], -1)
    return torch.stack(rows, dim=-2), new_record, generation + 1, order if ranked else index


def _ranking(fitness: Tensor, maximize: bool) -> tuple[Tensor, Tensor]:
    """Returns all indices, best first and stable, and which candidates failed; they come last."""
    if not fitness.is_floating_point():
        failed = torch.zeros_like(fitness, dtype=torch.bool)
        return torch.sort(fitness, stable=True, descending=maximize).indices, failed
    worst = -math.inf if maximize else math.inf
    failed = fitness.isnan() | (fitness == worst)
    scores = torch.where(failed, worst, fitness) + 0.0  # -0 becomes 0
    return torch.sort(scores, stable=True, descending=maximize).indices, failed


def _rows(candidates: Tensor, index: Tensor) -> Tensor:
    """Returns rows of (..., N, d) by indices (..., K): (..., K, d)."""
    if candidates.dim() == 2:
        return candidates.index_select(0, index)
    return candidates.gather(-2, index[..., None].expand(*index.shape, candidates.shape[-1]))


def _sum(*terms: Tensor) -> tuple[Tensor, ...]:
    """Returns the sums of tensors (..., K, m) over K, each (..., m)."""
    return tuple(term.sum(-2) for term in terms)


def _ordered_sum(*terms: Tensor) -> tuple[Tensor, ...]:
    """Returns the sums of tensors (..., K, m) over K, each (..., m), in the operator's order.

    Chunks of 512 are added each for itself, and then their sums, both as ``_folded`` does it.
    """
    x = torch.cat(terms, dim=-1)
    count, width = x.shape[-2:]
    if count > CHUNK:
        chunks = -(-count // CHUNK)
        x = _padded(x, chunks * CHUNK)
        x = _folded(x.reshape(*x.shape[:-2], chunks, CHUNK, width))
    sums: tuple[Tensor, ...] = _folded(x).split([term.shape[-1] for term in terms], dim=-1)
    return sums


def _folded(x: Tensor) -> Tensor:
    """Returns the sum over the last dimension but one: 32 residue classes, each in order, then as a tree."""
    rows = -(-x.shape[-2] // RESIDUES)
    x = _padded(x, rows * RESIDUES)
    x = x.reshape(*x.shape[:-2], rows, RESIDUES, x.shape[-1])
    partial = x[..., 0, :, :] + 0.0
    for row in range(1, rows):
        partial = partial + x[..., row, :, :]
    half = RESIDUES // 2
    while half:
        partial = partial[..., :half, :] + partial[..., half:, :]
        half //= 2
    return partial[..., 0, :]


def _padded(x: Tensor, count: int) -> Tensor:
    """Returns a tensor with zeros appended to its last dimension but one."""
    more = count - x.shape[-2]
    return torch.cat([x, x.new_zeros(*x.shape[:-2], more, x.shape[-1])], dim=-2) if more else x


def _rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns a finite tensor of another type: what is too large becomes the largest number."""
    largest = torch.finfo(dtype).max
    return x.clamp(-largest, largest).to(dtype)
