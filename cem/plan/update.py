"""How the distribution of plans moves after an iteration, by the costs of the plans.

Without a temperature the elites have equal weights: the cross-entropy method of de Boer et al.
2005. With a temperature they have the weights

    w_k = exp(-(c_k - c_1) / temperature) / sum_j exp(-(c_j - c_1) / temperature)

where c_1 is the least cost: MPPI of G. Williams et al., Information Theoretic MPC for
Model-Based Reinforcement Learning, ICRA 2017, if all plans are elites, and the planner of
TD-MPC2 if a part of them is.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from cem.core.state import BEST, BEST_FITNESS, MEAN, STD
from cem.plan.options import Options
from kernels.ops.cem_update import cem_update, cem_update_reference
from kernels.ops.cem_update.reference import rank_candidates, select_rows


class Fit(NamedTuple):
    """The distribution of B environments after an iteration.

    Attributes:
        distribution: The rows of ``State.distribution``: mean, standard deviation, the mean
            once more, and the best vector so far, shape (B, 4, d).
        record: The columns of ``State.record``, of which only the least cost so far is used,
            shape (B, 5), float64.
        ranking: The numbers of the elites from the best to the worst, shape (B, K).
    """

    distribution: Tensor
    record: Tensor
    ranking: Tensor


class Update:
    """Moves a distribution towards the elites of an iteration."""

    def __init__(
        self, options: Options, first_std: Tensor, maximize: bool, backend: str
    ) -> None:
        """Make an update.

        Args:
            options: The options of the planner.
            first_std: The first standard deviation, shape (d,).
            maximize: Whether a greater cost is better.
            backend: The backend, whose operator computes the update with equal weights.
        """
        self._options = options
        self._first_std = first_std
        self._maximize = maximize
        self._smoothing = 1.0 - options.momentum
        self._equal_weights = partial(
            cem_update_reference if backend == "torch" else cem_update,
            num_elites=options.elite_count,
            maximize=maximize,
            variance_about="new_mean_unbiased",
            smoothing=self._smoothing,
            std_smoothing=self._smoothing,
        )
        self._generation = torch.zeros((), dtype=torch.int64, device=first_std.device)

    def __call__(self, costs: Tensor, vectors: Tensor, old: Fit) -> Fit:
        """Return the next distribution, for costs (B, N) of vectors (B, N, d).

        A vector whose cost is NaN, or infinite on the bad side, is never an elite. If there is
        no other, the distribution stays as it is.
        """
        if self._options.temperature is None:
            distribution, record, _, ranking = self._equal_weights(
                costs, vectors, old.distribution, old.record, self._generation
            )
            new = Fit(distribution, record, ranking)
        else:
            new = self._update_by_weights(costs, vectors, old)
        self._limit_std(new.distribution[:, STD])
        return new

    def _limit_std(self, std: Tensor) -> None:
        """Bring standard deviations (B, d) between their limits, in place."""
        options = self._options
        if not options.adapt_std:
            std.copy_(self._first_std)
        elif options.min_std > 0.0 or options.max_std < torch.inf:
            std.clamp_(options.min_std, options.max_std)

    def weigh(self, costs: Tensor) -> Tensor:
        """Return the weights of elites, shape (B, K), for their costs from the best on.

        They sum to 1 with a temperature. Elites whose cost is not finite have the weight 0;
        where none is finite, the weights are NaN or 0.
        """
        costs = costs.double()
        gaps = (costs - costs[:, :1]).abs().nan_to_num(torch.inf)
        if self._options.temperature is None:
            return torch.where(gaps.isfinite(), 1.0, 0.0)
        return torch.softmax(-gaps / self._options.temperature, dim=-1)

    def _update_by_weights(self, costs: Tensor, vectors: Tensor, old: Fit) -> Fit:
        """Return the next distribution by the weights of ``weigh``."""
        scores, order = rank_candidates(costs, self._maximize)
        num_elites = self._options.elite_count
        ranking = order[:, :num_elites]
        elites = select_rows(vectors, ranking)
        weights = self.weigh(scores[:, :num_elites]).to(vectors.dtype).unsqueeze(-1)
        mean = (weights * elites).sum(1)
        variance = (weights * (elites - mean.unsqueeze(1)).square()).sum(1)
        moments = torch.stack([mean, variance.sqrt()], dim=1)
        old_moments = old.distribution[:, : STD + 1]
        moments = torch.lerp(old_moments, moments, self._smoothing)
        # The weights are NaN where every plan has failed.
        moments = torch.where(moments.isnan(), old_moments, moments)

        best, record = self._keep_best(scores[:, 0].double(), elites[:, 0], old)
        rows = [moments, moments[:, MEAN : MEAN + 1], best.unsqueeze(1)]
        return Fit(torch.cat(rows, dim=1), record, ranking)

    def _keep_best(self, score: Tensor, vector: Tensor, old: Fit) -> tuple[Tensor, Tensor]:
        """Return the best vector so far, shape (B, d), and the record with its cost.

        ``score`` is the best cost of this iteration, shape (B,), infinite if all plans failed;
        ``vector`` is its vector, shape (B, d).
        """
        old_score = old.record[:, BEST_FITNESS]
        better_of = torch.fmax if self._maximize else torch.fmin
        new_score = better_of(old_score, torch.where(score.isinf(), torch.nan, score))
        has_improved = (new_score == score) & (new_score != old_score)
        best = torch.where(has_improved.unsqueeze(1), vector, old.distribution[:, BEST])
        record = old.record.clone()
        record[:, BEST_FITNESS] = new_score
        return best, record
