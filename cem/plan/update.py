"""The update of the distribution of plans after an iteration, from the costs of the plans.

Without a temperature the elites have equal weights, as in the cross-entropy method of de Boer
et al. 2005. With a temperature elite k with the cost c_k has the weight

    w_k = exp(-(c_k - c_1) / temperature) / sum_j exp(-(c_j - c_1) / temperature)

where c_1 is the lowest cost. If all plans are elites, this is MPPI of G. Williams et al.,
Information Theoretic MPC for Model-Based Reinforcement Learning, ICRA 2017. If only some plans
are elites, it is the planner of TD-MPC2.
"""

from collections.abc import Callable
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
        distribution: The mean, the standard deviation, the mean again, and the best vector so
            far, shape (B, 4, d); the rows of ``State.distribution``.
        record: The columns of ``State.record``, shape (B, 5), float64. Only the lowest cost so
            far is used.
        ranking: The indices of the elites, the best first, shape (B, K).
    """

    distribution: Tensor
    record: Tensor
    ranking: Tensor


class Update:
    """Moves a distribution towards the elites of an iteration.

    Attributes:
        maximize: Whether a greater cost is better.
    """

    def __init__(
        self, options: Options, first_std: Tensor, maximize: bool, backend: str
    ) -> None:
        """Make an update.

        Args:
            options: The options of the planner.
            first_std: The initial standard deviation, shape (d,).
            maximize: Whether a greater cost is better.
            backend: "torch": use the reference implementation of the update with equal weights.
                Otherwise use the fused operator.
        """
        self._options = options
        self._first_std = first_std
        self.maximize = maximize
        # The weight of the elites' mean and std. The weight of the old ones is the momentum.
        self._smoothing = 1.0 - options.momentum
        update = cem_update_reference if backend == "torch" else cem_update
        self._update_by_equal_weights = partial(
            update,
            num_elites=options.elite_count,
            maximize=maximize,
            variance_about="new_mean_unbiased",
            smoothing=self._smoothing,
            std_smoothing=self._smoothing,
        )
        # The operator increments a number of generations, which is not used here.
        self._generation = torch.zeros((), dtype=torch.int64, device=first_std.device)
        self._update_by_weights: Callable[[Tensor, Tensor, Fit], Fit] = self._weighted_update

    def compile(self, dynamic: bool | None) -> None:
        """Compile the update with a temperature, which consists of many small operations.

        The other update is a fused operator already.

        Args:
            dynamic: Whether the number of vectors varies, as for ``torch.compile``.
        """
        self._update_by_weights = torch.compile(self._weighted_update, dynamic=dynamic)

    def __call__(self, costs: Tensor, vectors: Tensor, old: Fit) -> Fit:
        """Return the distribution after an iteration.

        A vector whose cost is NaN, or infinite on the bad side, is never an elite. If all costs
        are like that, the distribution does not change.

        Args:
            costs: The costs, shape (B, N).
            vectors: The vectors with these costs, shape (B, N, d).
            old: The distribution before the iteration.
        """
        if self._options.temperature is None:
            distribution, record, _, ranking = self._update_by_equal_weights(
                costs, vectors, old.distribution, old.record, self._generation
            )
            new = Fit(distribution, record, ranking)
        else:
            new = self._update_by_weights(costs, vectors, old)
        self._limit_std(new.distribution)
        return new

    def _limit_std(self, distribution: Tensor) -> None:
        """Clamp the standard deviations of distributions (B, 4, d) to their limits, in place.

        Without ``adapt_std`` restore the initial ones. An initial one of 0 stays 0.
        """
        options = self._options
        if not options.adapt_std:
            distribution[:, STD] = self._first_std
        elif options.min_std > 0.0 or options.max_std < torch.inf:
            std = distribution[:, STD].clamp_(options.min_std, options.max_std)
            std.mul_(self._first_std > 0.0)

    def weigh(self, costs: Tensor) -> Tensor:
        """Return the weights of elites, shape (B, K).

        With a temperature they sum to 1; otherwise each is 1. An elite whose cost is NaN or
        infinitely bad has the weight 0. If all are, the weights are NaN or 0.

        Args:
            costs: The costs of the elites, the best first, shape (B, K).
        """
        costs = costs.double()
        losses = -costs if self.maximize else costs
        # An infinitely good cost becomes the best finite number, a NaN becomes infinitely bad.
        losses = losses.nan_to_num(torch.inf, posinf=torch.inf)
        # How much worse each elite is than the best one, which is the first.
        gaps = (losses - losses[:, :1]).nan_to_num(torch.inf, posinf=torch.inf)
        if self._options.temperature is None:
            return torch.where(gaps.isfinite(), 1.0, 0.0)
        return torch.softmax(-gaps / self._options.temperature, dim=-1)

    def _weighted_update(self, costs: Tensor, vectors: Tensor, old: Fit) -> Fit:
        """Return the distribution after an iteration, with the weights of ``weigh``.

        Args:
            costs: The costs of the vectors, shape (B, N).
            vectors: The vectors of the iteration, shape (B, N, d). A vector encodes a plan.
            old: The distribution before the iteration.
        """
        sorted_costs, order = rank_candidates(costs, self.maximize)
        num_elites = self._options.elite_count
        ranking = order[:, :num_elites]
        elites = select_rows(vectors, ranking)
        # The K elites have the shape (B, K, d), and their weights have the shape (B, K, 1).
        weights = self.weigh(sorted_costs[:, :num_elites]).to(vectors.dtype).unsqueeze(-1)
        mean = (weights * elites).sum(1)
        variance = (weights * (elites - mean.unsqueeze(1)).square()).sum(1)
        # The moments are the mean and the standard deviation, shape (B, 2, d).
        elite_moments = torch.stack([mean, variance.sqrt()], dim=1)
        old_moments = old.distribution[:, : STD + 1]
        moments = torch.lerp(old_moments, elite_moments, self._smoothing)
        # If every plan has failed, the weights are NaN. The old moments then remain.
        moments = torch.where(moments.isnan(), old_moments, moments)

        best, record = self._keep_best(sorted_costs[:, 0].double(), elites[:, 0], old)
        # A distribution has four rows: mean, standard deviation, averaged mean and best vector.
        # A planner does not average its means, so the averaged mean is the mean.
        averaged_mean = moments[:, MEAN : MEAN + 1]
        rows = [moments, averaged_mean, best.unsqueeze(1)]
        return Fit(torch.cat(rows, dim=1), record, ranking)

    def _keep_best(self, cost: Tensor, vector: Tensor, old: Fit) -> tuple[Tensor, Tensor]:
        """Return the best vector so far, shape (B, d), and the record with its cost.

        Args:
            cost: The best cost of this iteration, shape (B,); infinite if all plans failed.
            vector: The vector with this cost, shape (B, d).
            old: The distribution before the iteration.
        """
        old_cost = old.record[:, BEST_FITNESS]
        better_of = torch.fmax if self.maximize else torch.fmin
        worst = -torch.inf if self.maximize else torch.inf
        # If one of the two costs is NaN, ``better_of`` returns the other.
        new_cost = better_of(old_cost, torch.where(cost == worst, torch.nan, cost))
        has_improved = (new_cost == cost) & (new_cost != old_cost)
        best = torch.where(has_improved.unsqueeze(1), vector, old.distribution[:, BEST])
        record = old.record.clone()
        record[:, BEST_FITNESS] = new_cost
        return best, record
