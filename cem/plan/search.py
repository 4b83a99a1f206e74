"""The search of one step: iterations that draw plans, evaluate them, and move a distribution.

The next step starts from the mean and the best plans of this step, shifted forward by one
action. The last iteration also evaluates the mean. This is iCEM of C. Pinneri, S. Sawant, S.
Blaes, J. Achterhold, J. Stueckler, M. Rolinek and G. Martius, Sample-efficient Cross-Entropy
Method for Real-time Planning, CoRL 2020, https://arxiv.org/abs/2008.06389.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cem.core.state import BEST, BEST_FITNESS, FAILED, MEAN, STD
from cem.plan.costs import PlanCost
from cem.plan.memory import Memory
from cem.plan.noise import Noise, NoiseKey
from cem.plan.options import Options
from cem.plan.spaces import BoxSpace
from cem.plan.states import State
from cem.plan.update import Fit, Update

# The length of a gradient step. Longer ones often step over a minimum in the last iterations.
_STRIDE = 0.1


class Task(NamedTuple):
    """The input of a step.

    Attributes:
        state: The states of B environments.
        envs: The indices of these environments, shape (B,), int64. None: all environments.
        init: Plans to use as the first mean, shape (B, horizon, A). None: the shifted mean of
            the previous step.
        proposals: Plans that are candidates in every iteration, shape (B, P, horizon, A), or
            None.
    """

    state: State
    envs: Tensor | None
    init: Tensor | None
    proposals: Tensor | None


class Result(NamedTuple):
    """The result of a step.

    Attributes:
        executed: The plan whose first action is to be executed, shape (B, horizon, A).
        best: The vector of the best plan, shape (B, d).
        mean: The last mean, shape (B, d).
        cost: The cost of the best plan, shape (B,), float64.
        elites: The vectors of the elites of the last iteration, from the best to the worst,
            shape (B, K, d).
        elite_costs: The costs of the elites, shape (B, K).
    """

    executed: Tensor
    best: Tensor
    mean: Tensor
    cost: Tensor
    elites: Tensor
    elite_costs: Tensor


@dataclass(frozen=True)
class Search:
    """Searches for the best plans from a state.

    A CUDA graph may capture ``step``, because it never waits for the GPU and writes only to
    tensors that it creates.
    """

    cost: PlanCost
    space: BoxSpace
    noise: Noise
    update: Update
    options: Options

    def step(self, task: Task, memory: Memory, shift: int) -> tuple[Memory, Result]:
        """Plan for the B environments of a task.

        A vector of d numbers represents a plan. Every iteration draws vectors from a normal
        distribution, evaluates their plans, and moves the distribution towards the elites, the
        vectors of lowest cost. The vectors of an iteration are, in this order:

        1. the ``num_reused`` best vectors of the previous iteration;
        2. the proposals of the task;
        3. newly drawn vectors.

        With ``gradient_steps`` the vectors of the first group then move down the gradient of
        their costs. This is a variant of the planner of H. Bharadhwaj, K. Xie and F. Shkurti,
        Model-Predictive Control via Cross-Entropy and Gradient-Based Optimization, L4DC 2020,
        https://arxiv.org/abs/2004.08763, which moves all vectors.

        Args:
            task: The input of the step.
            memory: What the previous step has passed to this one, for all environments.
            shift: The number of actions executed since the previous step.

        Returns:
            The next memory of all environments, and the result for those of the task.
        """
        last = memory.select(task.envs)
        # The number of vectors of each iteration.
        sizes = self.options.sizes
        num_reused = self.options.num_reused
        # ``fit`` is the fitted distribution; its ``ranking`` are the indices of the elites.
        fit = self._start(last, task.init, shift)
        # The key determines the noise of an iteration.
        key = self.noise.make_key(task.envs, last.generation)
        proposals = self._encode_proposals(task.proposals)
        vectors = self._draw(fit, sizes[0], key, proposals)

        # The first iteration reuses the elites of the previous step, shifted in time. They
        # replace the first vectors: ``reused`` is a view of these.
        reused = vectors[:, :num_reused]
        self.space.shift_elites(last.elites, shift, out=reused)
        self._descend(task.state, fit, reused)

        for next_size in sizes[1:]:
            costs = self._evaluate(task.state, vectors)
            fit = self.update(costs, vectors, fit)
            key = key.advance()
            next_vectors = self._draw(fit, next_size, key, proposals)
            reused = next_vectors[:, :num_reused]
            self._copy_best(vectors, fit.ranking, out=reused)
            self._descend(task.state, fit, reused)
            vectors = next_vectors

        # In the last iteration the mean replaces the first newly drawn vector. With discrete
        # actions, ``as_candidate`` returns the vector of the most likely plan.
        mean = self.space.as_candidate(fit.distribution[:, MEAN])
        vectors[:, num_reused + proposals.shape[1]] = mean
        costs = self._evaluate(task.state, vectors)
        fit = self.update(costs, vectors, fit)
        next_rows, result = self._finish(vectors, costs, fit, key.advance())
        return memory.replace_rows(task.envs, next_rows), result

    def _start(self, memory: Memory, init: Tensor | None, shift: int) -> Fit:
        """Return the initial distribution of a step.

        Its mean represents the plans ``init``. If that is None, it is the mean of the previous
        step, which the memory contains, shifted by ``shift`` actions. Its standard deviation is
        the same in every step. The mean is also its best vector, until a plan has a usable
        cost.
        """
        # The parts of the mean, which a single ``torch.cat`` joins below, with all other rows.
        if init is None:
            mean_parts = self.space.shift_mean(memory.mean, shift)
        else:
            mean_parts = [self.space.encode(init)]
        # With discrete actions, make every value possible again.
        mean_parts = self.space.widen(mean_parts)
        std = self.space.first_std.expand_as(memory.mean)
        # The four rows of a distribution are its mean, standard deviation, averaged mean and
        # best vector, shape (B, 4, d). A planner averages no means.
        rows = [*mean_parts, std, *mean_parts, *mean_parts]
        distribution = torch.cat(rows, dim=1).view(len(std), 4, std.shape[-1])
        # A record has a column for the best cost. NaN means that there is no best cost yet. The
        # other columns, up to ``FAILED``, are not used here.
        record_shape = (len(std), FAILED + 1)
        record = std.new_full(record_shape, math.nan, dtype=torch.float64)
        no_ranking = std.new_empty((len(std), 0), dtype=torch.int64)
        return Fit(distribution, record, no_ranking)

    def _encode_proposals(self, proposals: Tensor | None) -> Tensor:
        """Return the vectors of proposals, shape (B, P, d); without proposals P is 0."""
        if proposals is None:
            return self.space.first_mean.new_empty((1, 0, 0))
        return self.space.encode(proposals)

    def _draw(self, fit: Fit, size: int, key: NoiseKey, proposals: Tensor) -> Tensor:
        """Draw the vectors of an iteration, shape (B, size, d), and insert the proposals.

        The first vectors are left as they are, for the caller to replace them by vectors of the
        previous iteration.
        """
        vectors = self.space.draw(fit.distribution, size, key)
        num_proposals = proposals.shape[1]
        if num_proposals:
            first = self.options.num_reused
            vectors[:, first : first + num_proposals] = proposals
        return vectors

    def _evaluate(self, state: State, vectors: Tensor) -> Tensor:
        """Return the costs of the plans that vectors (B, N, d) represent, shape (B, N)."""
        return self.cost.evaluate(state, self.space.decode(vectors))

    def _copy_best(self, vectors: Tensor, ranking: Tensor, out: Tensor) -> None:
        """Copy the best K of the vectors (B, N, d) to ``out``, shape (B, K, d).

        ``ranking``, shape (B, K or more), has the indices of the vectors, the best first.
        """
        count = out.shape[1]
        if vectors.shape[0] == 1:  # gather takes twice as long on a GPU
            torch.index_select(vectors[0], 0, ranking[0, :count], out=out[0])
        else:
            best = ranking[:, :count]
            torch.gather(vectors, 1, best.unsqueeze(-1).expand_as(out), out=out)

    def _descend(self, state: State, fit: Fit, vectors: Tensor) -> None:
        """Move vectors (B, K, d) down the gradient of their costs, in place.

        Gradients and steps are measured in standard deviations. In this unit the root mean
        square of a step is ``_STRIDE``. Without the option ``gradient_steps`` nothing moves.
        """
        if self.options.gradient_steps == 0:
            return
        std = fit.distribution[:, STD].unsqueeze(1)
        stride = _STRIDE if self.update.maximize else -_STRIDE
        for _ in range(self.options.gradient_steps):
            # The derivatives by (x / std) are std times the derivatives by x.
            slope = std * self._find_gradient(state, vectors)
            length = slope.square().mean(-1, keepdim=True).sqrt()
            # A vector whose gradient is 0 or not finite does not move.
            step = (std * slope / length).nan_to_num(0.0, 0.0, 0.0)
            vectors.add_(step, alpha=stride).clamp_(*self.space.limits)

    @torch.inference_mode(False)
    @torch.enable_grad()
    def _find_gradient(self, state: State, vectors: Tensor) -> Tensor:
        """Return the gradients of the costs of vectors (B, K, d), of the same shape."""
        points = vectors.clone().requires_grad_()
        costs = self._evaluate(state, points)
        if not costs.requires_grad:
            raise ValueError(
                "expected costs that are differentiable in the plans for gradient_steps, "
                "got costs without a gradient"
            )
        (gradient,) = torch.autograd.grad(costs.sum(), points)
        return gradient

    def _finish(
        self, vectors: Tensor, costs: Tensor, fit: Fit, key: NoiseKey
    ) -> tuple[Memory, Result]:
        """Return the next memory and the result of a step, both for B environments.

        The memory contains what the next step starts from.

        Args:
            vectors: The vectors of the last iteration, shape (B, N, d).
            costs: Their costs, shape (B, N).
            fit: The distribution after the last iteration. Its ``ranking`` are the indices of
                the K elites among the vectors, the best first, shape (B, K).
            key: The key of the noise of the next iteration. The option ``execute="sample"``
                uses it to choose an elite.
        """
        num_elites = fit.ranking.shape[1]
        elites = vectors.new_empty((len(vectors), num_elites, vectors.shape[-1]))
        self._copy_best(vectors, fit.ranking, out=elites)
        elite_costs = costs.gather(1, fit.ranking)
        mean = fit.distribution[:, MEAN]
        best = fit.distribution[:, BEST]

        # Choose the plan whose first action is to be executed.
        if self.options.execute == "mean":
            executed = mean
        elif self.options.execute == "best":
            executed = best
        else:  # "sample"
            sampled = self._sample_elite(elites, elite_costs, key)
            # Elites are sorted: if the cost of the first one is not finite, none is usable.
            is_usable = elite_costs[:, :1].isfinite()
            executed = torch.where(is_usable, sampled, best)

        # Plans are decoded vectors. Their cost is what a record calls the fitness.
        result = Result(
            executed=self.space.decode(executed),
            best=best,
            mean=mean,
            cost=fit.record[:, BEST_FITNESS],
            elites=elites,
            elite_costs=elite_costs,
        )
        reused = elites[:, : self.options.num_reused]
        return Memory(mean, reused, generation=key.generation), result

    def _sample_elite(self, elites: Tensor, costs: Tensor, key: NoiseKey) -> Tensor:
        """Draw one of the elites (B, K, d) for each environment, shape (B, d).

        The probabilities are proportional to the elites' weights. This is the Gumbel-max trick:
        add independent Gumbel noise to the logarithms of the weights, and take the elite with
        the largest sum.
        """
        # The noise is normal. Its logarithmic distribution function turns it into Gumbel noise.
        noise = self.noise.draw_choice(costs.shape[1], key)
        gumbel = -torch.log(-torch.special.log_ndtr(noise))
        chosen = (self.update.weigh(costs).log() + gumbel).argmax(-1)
        return elites[torch.arange(len(elites), device=elites.device), chosen]
