"""The update of the cross-entropy method in plain PyTorch, for any device.

It computes what ``cem_update`` computes. It needs no compiler, waits for no device, and works
under ``torch.compile`` and ``torch.func.vmap``.
"""

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

    On a CPU the results are those of the operator bit for bit: the sums are added in the same
    order. Where ``torch.sqrt`` does not round as IEEE 754 demands, std alone differs, by a unit
    in the last place of float64. Without ``fixed_order`` torch adds the sums as it likes, in
    fewer steps, and elites are ranked in any case. The other arguments are those of
    ``cem_update``; nothing is checked.
    """
    all_scores, all_order = rank_candidates(fitness, maximize)
    scores = all_scores[..., :num_elites].double()
    order = all_order[..., :num_elites]
    # Candidates that failed are last, in the order of ranks and in that of indices.
    live = scores > -math.inf if maximize else scores < math.inf
    count = live.sum(-1, keepdim=True)
    some = live[..., :1]
    scores = torch.where(live, scores, math.nan)
    total_score = scores.nan_to_num(0.0, math.inf, -math.inf)[..., None]
    rank_weights = live.double() if weights is None else weights * live
    by_rank = weight = rank_weights[..., None]
    index = order
    if fixed_order:
        # `places` has the ranks of the elites in index order, then those that failed.
        places = torch.sort(torch.where(live, order, order + fitness.shape[-1])).indices
        index = order.gather(-1, places)
        total_score = total_score.gather(-2, places[..., None])
        weight = by_rank.gather(-2, places[..., None])
    elites = select_rows(candidates, index)
    top = select_rows(candidates, order[..., :1]) if fixed_order else elites[..., :1, :]
    base = top.double()
    x = torch.where(live[..., None], elites - base, 0.0)
    weighted = weight * x
    terms = [weighted, weighted * x, total_score, by_rank]
    if variance_about == "new_mean_unbiased":
        terms.append(by_rank * by_rank)
    columns = torch.cat(terms, -1)
    sums = _sum_in_order(columns) if fixed_order else columns.sum(-2)
    first, second, total_score, total, *squares = sums.split(
        [term.shape[-1] for term in terms], -1
    )

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
        variance = variance + variance_of_generation(extra_variance, generation)
    # False where mean or variance is NaN, as both are where all candidates failed: the weights
    # sum to 0.
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

    known, _, failed = record.split([1, 3, 1], -1)
    top_score = scores[..., :1]
    # Both return the number where the other argument is NaN.
    better_of = torch.fmax if maximize else torch.fmin
    best_score = better_of(known, top_score)
    better = some & (best_score != known)
    old, best = distribution.split([3, 1], -2)
    marginals = round_to(torch.stack([new_mean, new_std, moved], -2), old.dtype)
    marginals = torch.where(changed[..., None, :], marginals, old)
    best = torch.where(better[..., None], top, best)
    threshold = scores.gather(-1, (count - 1).clamp(min=0))
    after = generation + 1
    figures = [
        best_score,
        top_score,
        total_score / count,
        threshold,
        torch.where(some, failed, after),
    ]
    new_distribution = torch.cat([marginals, best], -2)
    new_record = torch.cat(figures, -1)
    elite_indices = order if ranked else index
    return new_distribution, new_record, after, elite_indices


def variance_of_generation(extra_variance: Tensor, generation: Tensor) -> Tensor:
    """Return the extra variance of a generation, shape (1,).

    Beyond the table it is the last entry.
    """
    last = generation.clamp(0, extra_variance.shape[0] - 1)
    return extra_variance.index_select(0, last.reshape(1))


def rank_candidates(fitness: Tensor, maximize: bool) -> tuple[Tensor, Tensor]:
    """Return the fitness, best first, and the indices of the candidates in this order.

    Equal fitness keeps the order of the indices. Candidates that failed are last, at infinity.
    """
    if fitness.is_floating_point():
        worst = -math.inf if maximize else math.inf
        fitness = fitness.nan_to_num(worst, math.inf, -math.inf) + 0.0  # -0 becomes 0
    return torch.sort(fitness, stable=True, descending=maximize)


def select_rows(candidates: Tensor, index: Tensor) -> Tensor:
    """Return the rows of (..., N, d) at indices (..., K), shape (..., K, d)."""
    if candidates.dim() == 2:
        return candidates.index_select(0, index)
    return candidates.gather(-2, index[..., None].expand(*index.shape, candidates.shape[-1]))


def round_to(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor in another dtype; numbers that are too large become its largest one."""
    largest = torch.finfo(dtype).max
    return x.clamp(-largest, largest).to(dtype)


def _sum_in_order(x: Tensor) -> Tensor:
    """Return the sums of a tensor (..., K, m) over K, (..., m), in the operator's order.

    Chunks of 512 are folded, and then the row of their sums.
    """
    if x.shape[-2] > CHUNK:
        padded = pad(x, (0, 0, 0, -x.shape[-2] % CHUNK))
        x = _fold(padded.unflatten(-2, (-1, CHUNK)))
    return _fold(x)


def _fold(x: Tensor) -> Tensor:
    """Return the sums over the last dimension but one.

    The rows of each of 32 residue classes are added in order, then the classes as a tree.
    """
    x = pad(x, (0, 0, 0, -x.shape[-2] % RESIDUES)).unflatten(-2, (-1, RESIDUES))
    partial = x[..., 0, :, :] + 0.0
    for row in range(1, x.shape[-3]):
        partial = partial + x[..., row, :, :]
    half = RESIDUES // 2
    while half:
        partial = partial[..., :half, :] + partial[..., half:, :]
        half //= 2
    return partial[..., 0, :]
