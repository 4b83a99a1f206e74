"""The search of one step: iterations that draw plans, evaluate them, and move a distribution.

The next step begins with the mean and the best plans of the last one, moved forward by one
action. The last iteration also evaluates the mean. This is iCEM of C. Pinneri, S. Sawant, S.
Blaes, J. Achterhold, J. Stueckler, M. Rolinek and G. Martius, Sample-efficient Cross-Entropy
Method for Real-time Planning, CoRL 2020, https://arxiv.org/abs/2008.06389.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cem.core.state import BEST, BEST_FITNESS, FAILED, MEAN
from cem.plan.costs import PlanCost
from cem.plan.memory import Memory
from cem.plan.noise import Noise, NoiseKey
from cem.plan.options import Options
from cem.plan.spaces import BoxSpace
from cem.plan.states import State
from cem.plan.update import Fit, Update


class Task(NamedTuple):
    """What a step plans for.

    Attributes:
        state: The states of B environments.
        envs: The numbers of these environments, shape (B,), int64; None: all.
        init: Plans that are the first mean, shape (B, horizon, A); None: the mean of the last
            step, moved forward.
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
        best: The best plan, shape (B, horizon, A).
        mean: The plan that the last mean stands for, shape (B, horizon, A).
        cost: The cost of the best plan, shape (B,), float64.
        elites: The elites of the last iteration from the best to the worst, shape (B, K,
            horizon, A).
        elite_costs: Their costs, shape (B, K).
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
        """Return the next memory of all environments, and the result of a step for some."""
        rows, result = self.run(task, memory.select(task.envs), shift)
        return memory.replace_rows(task.envs, rows), result

    def run(self, task: Task, memory: Memory, shift: int) -> tuple[Memory, Result]:
        """Return the next memory and the result of a step, both for B environments.

        Every iteration draws vectors from a normal distribution, evaluates the plans that they
        stand for, and moves the distribution towards the elites, those of least cost. The best
        ones are evaluated again in the next iteration, in which they replace the first of the
        vectors drawn; the proposals replace the next ones.

        Args:
            task: What the step plans for.
            memory: The memory of the B environments.
            shift: The number of actions since the last step.
        """
        sizes = self.options.sizes
        reused = slice(self.options.num_reused)
        fit = self._start(memory, task.init, shift)
        key = self.noise.make_key(task.envs, memory.generation)
        proposals = self._encode_proposals(task.proposals)
        vectors = self._draw(fit, sizes[0], key, proposals)
        self.space.shift_elites(memory.elites, shift, out=vectors[:, reused])
        for next_size in sizes[1:]:
            costs = self._evaluate(task.state, vectors)
            fit = self.update(costs, vectors, fit)
            key = key.advance()
            next_vectors = self._draw(fit, next_size, key, proposals)
            self._copy_best(vectors, fit.ranking, out=next_vectors[:, reused])
            vectors = next_vectors
        # The last iteration also evaluates the mean, in place of the first vector drawn.
        mean = self.space.as_candidate(fit.distribution[:, MEAN])
        vectors[:, self.options.num_reused + proposals.shape[1]] = mean
        costs = self._evaluate(task.state, vectors)
        fit = self.update(costs, vectors, fit)
        return self._finish(vectors, costs, fit, key.advance())

    def _start(self, memory: Memory, init: Tensor | None, shift: int) -> Fit:
        """Return the first distribution of a step.

        Its mean is also the best plan until a plan has a usable cost. Only the mean is that of
        the step before: every step begins with the first standard deviation.
        """
        if init is None:
            mean = self.space.shift_mean(memory.mean, shift)
        else:
            mean = [self.space.encode(init)]
        mean = self.space.widen(mean)
        std = self.space.first_std.expand_as(memory.mean)
        rows = [*mean, std, *mean, *mean]
        distribution: Tensor = torch.cat(rows, dim=1).unflatten(1, (4, -1))
        shape = (len(std), FAILED + 1)
        record = std.new_full(shape, math.nan, dtype=torch.float64)
        no_ranking = std.new_empty((len(std), 0), dtype=torch.int64)
        return Fit(distribution, record, no_ranking)

    def _encode_proposals(self, proposals: Tensor | None) -> Tensor:
        """Return the vectors of proposals, shape (B or 1, P, d)."""
        if proposals is None:
            return self.space.first_mean.new_empty((1, 0, 0))
        return self.space.encode(proposals)

    def _draw(self, fit: Fit, size: int, key: NoiseKey, proposals: Tensor) -> Tensor:
        """Return the vectors of an iteration, shape (B, size, d): proposals among others."""
        vectors = self.space.draw(fit.distribution, size, key)
        num_proposals = proposals.shape[1]
        if num_proposals:
            first = self.options.num_reused
            vectors[:, first : first + num_proposals] = proposals
        return vectors

    def _evaluate(self, state: State, vectors: Tensor) -> Tensor:
        """Return the costs of the plans of vectors (B, N, d), shape (B, N)."""
        return self.cost.evaluate(state, self.space.decode(vectors))

    def _copy_best(self, vectors: Tensor, ranking: Tensor, out: Tensor) -> None:
        """Copy the first K vectors (B, N, d) of a ranking (B, ...) to ``out``, (B, K, d)."""
        best = ranking[:, : out.shape[1]]
        if len(vectors) == 1:  # gather takes twice as long on a GPU
            torch.index_select(vectors[0], 0, best[0], out=out[0])
        else:
            torch.gather(vectors, 1, best.unsqueeze(-1).expand_as(out), out=out)

    def _finish(
        self, vectors: Tensor, costs: Tensor, fit: Fit, key: NoiseKey
    ) -> tuple[Memory, Result]:
        """Return the next memory and the result, from the last vectors and their costs."""
        num_elites = fit.ranking.shape[1]
        elites = vectors.new_empty((len(vectors), num_elites, vectors.shape[-1]))
        self._copy_best(vectors, fit.ranking, out=elites)
        elite_costs = costs.gather(1, fit.ranking)
        mean = fit.distribution[:, MEAN]
        best = fit.distribution[:, BEST]
        executed = mean if self.options.execute == "mean" else best
        if self.options.execute == "sample":
            chosen = self._choose(elites, elite_costs, key)
            executed = torch.where(elite_costs[:, :1].isfinite(), chosen, best)
        decode = self.space.decode
        result = Result(
            executed=decode(executed),
            best=decode(best),
            mean=decode(mean),
            cost=fit.record[:, BEST_FITNESS],
            elites=decode(elites),
            elite_costs=elite_costs,
        )
        return Memory(mean, elites[:, : self.options.num_reused], key.generation), result

    def _choose(self, elites: Tensor, costs: Tensor, key: NoiseKey) -> Tensor:
        """Return one of the elites (B, K, d), drawn by their weights, shape (B, d).

        The largest sum of a logarithm and noise of the Gumbel distribution is at each elite
        with its weight as the probability.
        """
        noise = self.noise.draw_choice(costs.shape[1], key)
        gumbel = -torch.log(-torch.special.log_ndtr(noise))
        chosen = (self.update.weigh(costs).log() + gumbel).argmax(-1)
        return elites[torch.arange(len(elites), device=elites.device), chosen]
