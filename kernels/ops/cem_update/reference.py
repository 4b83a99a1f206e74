"""The update of the cross-entropy method in plain PyTorch, for any device.

It returns what ``cem_update`` returns. It needs no compiler, never waits for a device, and
works under ``torch.compile`` and ``torch.func.vmap``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

RESIDUES = 32
CHUNK = 512
VARIANCES = {"new_mean": 0, "new_mean_unbiased": 1, "old_mean": 2}
"""The values of ``variance_about``, and the numbers that the operator in C++ takes for them."""


@torch.no_grad()
def cem_update_reference(  # noqa: PLR0913 - the state and the settings of an update
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
    """Return what ``cem_update`` returns, computed in plain PyTorch.

    On a CPU the results equal the operator's bit for bit, because sums are added in the same
    order. Only where ``torch.sqrt`` does not round as IEEE 754 requires, std may differ by one
    unit in the last place of float64. Without ``fixed_order`` torch adds in any order, in fewer
    steps, and elites are always in rank order. All other arguments are those of ``cem_update``,
    but they are not checked.
    """
    all_scores, all_order = rank_candidates(fitness, maximize)
    scores = all_scores[..., :num_elites].double()
    order = all_order[..., :num_elites]
    # Elites that failed come last, both in rank order and in index order.
    is_usable = scores > -math.inf if maximize else scores < math.inf
    scores = torch.where(is_usable, scores, math.nan)
    rank_weights = is_usable.double() if weights is None else weights * is_usable
    elites = _Elites(order, is_usable, scores, rank_weights)
    has_squares = variance_about == "new_mean_unbiased"
    sums, top, index = _sum_elites(candidates, elites, has_squares, fixed_order)

    # The mean and the variance of the elites. The sums are those of x, a candidate minus the
    # best.
    mean, std, averaged, _ = distribution.double().unbind(-2)
    total_weight = sums.weight
    share = total_weight.reciprocal()
    offset = sums.x * share
    new_mean = top[..., 0, :].double() + offset
    variance = (sums.x_squared * share - offset * offset).clamp(min=0.0)
    if sums.weight_squared is not None:
        scale = 1.0 - sums.weight_squared / (total_weight * total_weight)
        variance = torch.where(scale > 0.0, variance * (1.0 / scale), std * std)
    elif variance_about == "old_mean":
        step = new_mean - mean
        variance = variance + step * step
    if extra_variance is not None:
        variance = variance + variance_of_generation(extra_variance, generation)
    # The comparison is False for NaN. Mean and variance are NaN if all candidates failed,
    # because the weights then sum to 0.
    is_finite = torch.maximum(new_mean.abs(), variance) < math.inf

    # Move the distribution towards these moments.
    new_std = variance.sqrt()
    if smoothing != 1.0:
        new_mean = mean + smoothing * (new_mean - mean)
    if std_smoothing != 1.0:
        new_std = std + std_smoothing * (new_std - std)
    if std_floor is not None:
        new_std = torch.maximum(new_std, std_floor)
    new_averaged = new_mean
    if mean_averaging != 0.0:
        newest = 1.0 / (1.0 + mean_averaging * generation.double())
        new_averaged = torch.where(
            newest == 1.0, new_mean, averaged + (new_mean - averaged) * newest
        )
    old_marginals, old_best = distribution.split([3, 1], -2)
    marginals = round_to(
        torch.stack([new_mean, new_std, new_averaged], -2), old_marginals.dtype
    )
    marginals = torch.where(is_finite[..., None, :], marginals, old_marginals)

    # Update the record and the best candidate so far.
    new_generation = generation + 1
    new_record = _next_record(record, elites, sums.score, new_generation, maximize)
    has_improved = is_usable[..., :1] & (new_record[..., :1] != record[..., :1])
    best = torch.where(has_improved[..., None], top, old_best)
    new_distribution = torch.cat([marginals, best], -2)
    return new_distribution, new_record, new_generation, order if ranked else index


def _next_record(
    record: Tensor,
    elites: _Elites,
    total_score: Tensor,
    new_generation: Tensor,
    maximize: bool,
) -> Tensor:
    """Return the record after a generation, shape (..., 5), float64.

    Its five numbers are the best fitness so far; the best, the mean and the worst fitness of
    this generation's elites; and the last generation, counted from 1, in which all candidates
    failed. The last number is 0 if there is no such generation.

    Args:
        record: the record before this generation, shape (..., 5).
        elites: the elites from the best to the worst.
        total_score: the sum of the scores that are not NaN, shape (..., 1).
        new_generation: the number of this generation, counted from 1, shape ().
        maximize: True if a greater fitness is better.
    """
    best_so_far, _, last_failure = record.split([1, 3, 1], -1)
    top_score = elites.scores[..., :1]
    # If one argument is NaN, fmax and fmin return the other one.
    better_of = torch.fmax if maximize else torch.fmin
    # Elites that failed come last. If the first one failed, all candidates did.
    has_usable = elites.is_usable[..., :1]
    num_usable = elites.is_usable.sum(-1, keepdim=True)
    # If no elite is usable, this is scores[0], which is NaN.
    worst_score = elites.scores.gather(-1, (num_usable - 1).clamp(min=0))
    new_record = [
        better_of(best_so_far, top_score),
        top_score,
        total_score / num_usable,
        worst_score,
        torch.where(has_usable, last_failure, new_generation),
    ]
    return torch.cat(new_record, -1)


class _Elites(NamedTuple):
    """The K elites of a generation. Those that failed come last."""

    indices: Tensor  # of the elites among the candidates, shape (..., K)
    is_usable: Tensor  # False for elites that failed, shape (..., K)
    scores: Tensor  # the fitness, shape (..., K), float64; NaN for elites that failed
    weights: Tensor  # w_k, shape (..., K), float64; 0 for elites that failed

    def by_index(self, num_candidates: int) -> _Elites:
        """Return the elites in the order of their indices; failed ones remain last."""
        last_indices = self.indices + num_candidates
        sort_key = torch.where(self.is_usable, self.indices, last_indices)
        places = torch.sort(sort_key).indices
        return _Elites(
            self.indices.gather(-1, places),
            self.is_usable,
            self.scores.gather(-1, places),
            self.weights.gather(-1, places),
        )


class _EliteSums(NamedTuple):
    """Sums over the K elites, in which x_k is the k-th elite minus the best one."""

    x: Tensor  # sum of w_k x_k, shape (..., d)
    x_squared: Tensor  # sum of w_k x_k^2, shape (..., d)
    score: Tensor  # sum of the fitness, shape (..., 1)
    weight: Tensor  # sum of w_k, shape (..., 1)
    weight_squared: Tensor | None = None  # sum of w_k^2, shape (..., 1), if it is needed


def _sum_elites(
    candidates: Tensor, ranked: _Elites, has_squares: bool, fixed_order: bool
) -> tuple[_EliteSums, Tensor, Tensor]:
    """Return weighted sums over the elites, the best elite, and the indices of the elites.

    What is summed are the elites' offsets from the best elite, and their scores. The indices
    are in the order in which the elites were added.

    Args:
        candidates: shape (..., N, d).
        ranked: the elites from the best to the worst.
        has_squares: True to sum the squares of the weights, too.
        fixed_order: True to add the elites in the order of their indices. The operator in C++
            does the same, so the results are equal bit for bit. If False, torch chooses the
            order.
    """
    in_order = ranked.by_index(candidates.shape[-2]) if fixed_order else ranked
    elites = select_rows(candidates, in_order.indices)
    best = elites[..., :1, :]
    if fixed_order:  # In index order the best elite need not come first.
        best = select_rows(candidates, ranked.indices[..., :1])
    # An elite that failed adds nothing: its offset becomes 0, and so does its score, which is
    # NaN. The other two arguments of `nan_to_num` leave infinities unchanged.
    offsets = torch.where(in_order.is_usable[..., None], elites - best.double(), 0.0)
    scores = in_order.scores.nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf)
    weighted_offsets = in_order.weights[..., None] * offsets

    # In C++ the sums of w and w^2 are computed from the best elite to the worst, whatever the
    # order of the other sums.
    weights = ranked.weights[..., None]
    terms = [weighted_offsets, weighted_offsets * offsets, scores[..., None], weights]
    if has_squares:
        terms.append(weights * weights)

    # One sum over the columns of all terms is faster than one sum for each term.
    columns = torch.cat(terms, -1)
    sums_of_columns = _sum_in_order(columns) if fixed_order else columns.sum(-2)
    widths = [term.shape[-1] for term in terms]
    sums = _EliteSums(*sums_of_columns.split(widths, -1))
    return sums, best, in_order.indices


def variance_of_generation(extra_variance: Tensor, generation: Tensor) -> Tensor:
    """Return the extra variance of a generation, shape (1,).

    After the last entry of ``extra_variance`` that entry is repeated.
    """
    last = generation.clamp(0, extra_variance.shape[0] - 1)
    return extra_variance.index_select(0, last.reshape(1))


def rank_candidates(fitness: Tensor, maximize: bool) -> tuple[Tensor, Tensor]:
    """Return the fitness, sorted from best to worst, and the candidates' indices in this order.

    Candidates of equal fitness are sorted by index. Candidates that failed come last, with an
    infinite fitness.
    """
    if fitness.is_floating_point():
        fitness = replace_nan(fitness, maximize) + 0.0  # -0 becomes 0
    return torch.sort(fitness, stable=True, descending=maximize)


def replace_nan(fitness: Tensor, maximize: bool) -> Tensor:
    """Return the fitness with the worst infinity in place of NaN."""
    worst = -math.inf if maximize else math.inf
    # Without the other two arguments infinities would become finite.
    return fitness.nan_to_num(worst, math.inf, -math.inf)


def select_rows(candidates: Tensor, index: Tensor) -> Tensor:
    """Return the rows at indices (..., K) of a tensor (..., N, d), shape (..., K, d)."""
    if candidates.dim() == 2:
        return candidates.index_select(0, index)
    return candidates.gather(-2, index[..., None].expand(*index.shape, candidates.shape[-1]))


def round_to(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor in another dtype, in which too large numbers become the largest one."""
    largest = torch.finfo(dtype).max
    return x.clamp(-largest, largest).to(dtype)


def _sum_in_order(x: Tensor) -> Tensor:
    """Return the sum of a tensor (..., K, m) over K, added in the operator's order.

    Chunks of 512 rows are summed first, and then the sums of the chunks.
    """
    if x.shape[-2] > CHUNK:
        padded = pad(x, (0, 0, 0, -x.shape[-2] % CHUNK))
        x = _fold(padded.unflatten(-2, (-1, CHUNK)))
    return _fold(x)


def _fold(x: Tensor) -> Tensor:
    """Return the sum over the last but one dimension.

    Rows with the same index modulo 32 are added in order. The 32 sums are then added pairwise,
    as a tree.
    """
    # Append rows of zeros up to a multiple of 32, and view the rows as a table of 32 columns.
    x = pad(x, (0, 0, 0, -x.shape[-2] % RESIDUES)).unflatten(-2, (-1, RESIDUES))
    # The sums begin with 0, so that -0 becomes 0.
    partial = x[..., 0, :, :] + 0.0
    for row in range(1, x.shape[-3]):
        partial = partial + x[..., row, :, :]
    half = RESIDUES // 2
    while half:
        partial = partial[..., :half, :] + partial[..., half:, :]
        half //= 2
    return partial[..., 0, :]
