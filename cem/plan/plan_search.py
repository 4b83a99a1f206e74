"""The search for plans of one step, as a pure function of the state and of what the last step left.

Noise and update are the operators of ``kernels``. They wait for nothing, and nothing is changed in place but
what is made here, so a CUDA graph may capture a search.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cem.core.backend import mix_seed
from cem.core.checks import as_real
from cem.core.state import BEST, BEST_FITNESS, MEAN, STD
from kernels.ops.cem_update import cem_update, cem_update_reference
from kernels.ops.normal import sample_normal_rows

Cost = Callable[[Tensor, Tensor], Any]
"""``cost(state, plans)``: plans of shape ([B,] N, horizon, A) -> costs of shape ([B,] N)."""

_RECORD = 5  # the columns of a record


class Memory(NamedTuple):
    """What a step leaves to the next one; B environments, plans of d = horizon * action_dim numbers."""

    mean: Tensor  # (B, d)
    elites: Tensor  # (B, kept, d), the best plans of the last iteration
    started: Tensor  # (B,) bool; False: the next step is the first one of an episode
    generation: Tensor  # () int64: the iterations of all steps so far, which number the noise


class Found(NamedTuple):
    """What a step finds."""

    action: Tensor  # (B, action_dim), to be executed
    best: Tensor  # (B, d), the best plan
    cost: Tensor  # (B,) float64, of the best plan


@dataclass(frozen=True)
class PlanSearch:
    """The settings of a search; see ``cem.Planner``.

    Attributes:
        cost: The cost of plans.
        batch: The leading dimensions of states, plans and costs: (B,) or ().
        horizon: Actions a plan.
        action_dim: A, numbers an action.
        sizes: The plans of each iteration.
        num_elites: The elites of an iteration.
        kept: How many of them are candidates again.
        smoothing: The weight of the elites against the old distribution.
        executes_best: Whether the best plan is executed; otherwise the mean.
        maximize: Whether a greater cost is better.
        mean: The first mean, shape (d,).
        std: The first standard deviation, shape (d,).
        low: Lower bounds, shape (d,).
        high: Upper bounds, shape (d,).
        coloring: What colours noise along the horizon, shape (horizon, horizon); None: white noise.
        seed: The seed of each environment's noise, shape (B,), int64.
        backend: ``"cpu"`` or ``"cuda"``: the operators of ``kernels``; ``"torch"``: PyTorch operations, with
            noise of the first seed alone, which no CUDA graph captures.
    """

    cost: Cost
    batch: tuple[int, ...]
    horizon: int
    action_dim: int
    sizes: tuple[int, ...]
    num_elites: int
    kept: int
    smoothing: float
    executes_best: bool
    maximize: bool
    mean: Tensor
    std: Tensor
    low: Tensor
    high: Tensor
    coloring: Tensor | None
    seed: Tensor
    backend: str

    def begin(self) -> Memory:
        """Return the memory before the first step."""
        shape, device = (len(self.seed), len(self.mean)), self.mean.device
        return Memory(
            mean=self.mean.expand(shape).clone(),
            elites=self.mean.new_zeros(shape[0], self.kept, shape[1]),
            started=torch.zeros(shape[0], dtype=torch.bool, device=device),
            generation=torch.zeros((), dtype=torch.int64, device=device),
        )

    def __call__(self, state: Tensor, memory: Memory) -> tuple[Memory, Found]:
        """Search the best plan from a state.

        Args:
            state: The state, as the cost takes it.
            memory: What the last step left.

        Returns:
            What this step leaves, and what it found: new tensors.
        """
        kept, actions, generation = self.kept, self.action_dim, memory.generation
        started = memory.started[:, None]
        shifted = torch.cat([memory.mean[:, actions:], memory.mean[:, -actions:]], dim=1)
        mean = torch.where(started, shifted, self.mean)
        # The mean is the best plan until one has a usable cost.
        distribution = torch.stack([mean, self.std.expand_as(mean), mean, mean], dim=1)
        record = torch.full((len(mean), _RECORD), math.nan, dtype=torch.float64, device=mean.device)
        elites = memory.elites
        update = cem_update_reference if self.backend == "torch" else cem_update
        for iteration, size in enumerate(self.sizes):
            candidates = self._draw(distribution, size, generation)
            if iteration == 0:  # the action that enters the horizon is a drawn one
                drawn = candidates[:, :kept, :-actions]
                drawn.copy_(torch.where(started[:, None], elites[..., actions:], drawn))
            else:
                candidates[:, :kept] = elites
            if iteration == len(self.sizes) - 1:
                candidates[:, kept] = distribution[:, MEAN]
            costs = self._evaluate(state, candidates)
            distribution, record, generation, ranking = update(
                costs,
                candidates,
                distribution,
                record,
                generation,
                self.num_elites,
                maximize=self.maximize,
                variance_about="new_mean_unbiased",
                smoothing=self.smoothing,
                std_smoothing=self.smoothing,
            )
            chosen = ranking[:, :kept, None].expand(-1, -1, candidates.shape[2])
            elites = candidates.gather(1, chosen)
        mean, best = distribution[:, MEAN], distribution[:, BEST]
        after = Memory(mean, elites, torch.ones_like(memory.started), generation)
        action = (best if self.executes_best else mean)[:, :actions]
        return after, Found(action, best, record[:, BEST_FITNESS])

    def _draw(self, distribution: Tensor, size: int, generation: Tensor) -> Tensor:
        """Draw plans and clamp them into the bounds; shape (B, size, d)."""
        bounds = self.low, self.high
        if self.backend == "torch" or self.coloring is not None:
            mean, std = distribution[:, MEAN], distribution[:, STD]
            noise = self._noise(mean, size, generation)
            if self.coloring is not None:
                series = noise.view(*noise.shape[:2], self.action_dim, self.horizon)
                with torch.autocast(noise.device.type, enabled=False):
                    noise = (series @ self.coloring).transpose(2, 3).reshape(noise.shape)
            return torch.addcmul(mean[:, None], std[:, None], noise).clamp(*bounds)
        return sample_normal_rows(distribution, size, seed=self.seed, generation=generation, bounds=bounds)

    def _noise(self, mean: Tensor, size: int, generation: Tensor) -> Tensor:
        """Draw standard normal numbers, shape (B, size, d)."""
        if self.backend == "torch":
            generator = torch.Generator(mean.device)
            generator.manual_seed(mix_seed(int(self.seed[0]), int(generation)))
            shape = (len(mean), size, mean.shape[1])
            return torch.randn(shape, generator=generator, dtype=mean.dtype, device=mean.device)
        standard = torch.stack([torch.zeros_like(mean), torch.ones_like(mean)], dim=1)
        return sample_normal_rows(standard, size, seed=self.seed, generation=generation)

    def _evaluate(self, state: Tensor, plans: Tensor) -> Tensor:
        """Return the costs of plans, shape (B, N)."""
        size = plans.shape[1]
        expected = (*self.batch, size)
        drawn = plans._version
        found = self.cost(state, plans.view(*expected, self.horizon, self.action_dim))
        if plans._version != drawn:
            raise ValueError("expected a cost that leaves plans as they are, got them changed in place")
        costs = as_real("the costs", found).to(plans.device)
        if costs.shape != expected:
            raise ValueError(f"expected costs of shape {expected}, got {tuple(costs.shape)}")
        return costs.reshape(-1, size)


Model = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""``model(state, action) -> (next state, cost)`` of one step."""


def rollout_cost(model: Model, final: Callable[[Tensor], Tensor] | None = None) -> Cost:
    """Make a cost of plans of a model of single steps.

    Args:
        model: ``model(state, action) -> (next state, cost)``: states of shape ([B,] N, ...) and actions of
            shape ([B,] N, A) give states and costs ([B,] N). It is called once for each action of the plans.
        final: What is added at the end: the cost of the last state, shape ([B,] N). ``None``: nothing.

    Returns:
        The cost, for ``Planner``: the sum over the horizon. Every plan starts in the state that is given,
        of shape ([B,] ...).
    """

    def cost(state: Tensor, plans: Tensor) -> Tensor:
        *batch, size, _, _ = plans.shape
        place = len(batch)
        state = state.unsqueeze(place).expand(*batch, size, *state.shape[place:])
        total = torch.zeros(1, dtype=plans.dtype, device=plans.device)
        for action in plans.unbind(dim=-2):
            state, step = model(state, action)
            total = total + step
        return total if final is None else total + final(state)

    return cost
