"""The cost of plans: how a user's function is called, and a cost made from a model."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from cem.core.checks import check_shape
from cem.core.evaluation import call_with_copies
from cem.plan.states import State

Cost = Callable[[Any, Tensor], Any]
"""``cost(state, plans)``: plans of shape ([B,] N, horizon, A) -> costs of shape ([B,] N)."""

Model = Callable[[Any, Tensor], tuple[Any, Tensor]]
"""``model(state, action)`` returns (next state, cost) of one step."""


@dataclass(frozen=True)
class PlanCost:
    """A user's cost, which may be called for a part of the environments and plans at a time.

    Attributes:
        cost: The user's function.
        has_envs: Whether its arguments have a leading dimension of environments.
        expands_state: Whether it gets a state for every plan.
        batch_size: The maximum number of environments per call. None: all.
        chunk: The maximum number of plans of an environment per call. None: all.
    """

    cost: Cost
    has_envs: bool
    expands_state: bool
    batch_size: int | None
    chunk: int | None

    def evaluate(self, state: State, plans: Tensor) -> Tensor:
        """Return the costs of plans (B, N, horizon, A), shape (B, N)."""
        num_envs = len(plans)
        batch_size = self.batch_size or num_envs
        if batch_size >= num_envs:
            return self._evaluate_chunks(state, plans)
        costs = []
        for first in range(0, num_envs, batch_size):
            envs = slice(first, first + batch_size)
            costs.append(self._evaluate_chunks(state.select(envs), plans[envs]))
        return torch.cat(costs)

    def _evaluate_chunks(self, state: State, plans: Tensor) -> Tensor:
        """Return the costs of plans (B, N, horizon, A) in calls of at most ``chunk`` plans."""
        size = plans.shape[1]
        chunk = self.chunk or size
        if chunk >= size:
            return self._call(state, plans)
        parts = [part.contiguous() for part in plans.split(chunk, dim=1)]
        return torch.cat([self._call(state, part) for part in parts], dim=1)

    def _call(self, state: State, plans: Tensor) -> Tensor:
        """Return the costs of plans (B, N, horizon, A) by one call of the user's function."""
        if not self.has_envs:
            plans = plans.squeeze(0)
        function = partial(self._call_with_leaves, state.structure)
        result = call_with_copies(function, plans, *state.leaves)
        costs = check_shape("costs", result, tuple(plans.shape[:-2])).to(plans.device)
        if plans.requires_grad and isinstance(result, Tensor):
            costs = result  # ``check_shape`` has removed the gradient.
        if self.batch_size or self.chunk:
            # A cost may return the same tensor in every call, so its numbers are copied.
            costs = costs.clone()
        return costs if self.has_envs else costs.unsqueeze(0)

    def _call_with_leaves(self, structure: Any, plans: Tensor, *leaves: Tensor) -> Any:
        state = pytree.tree_unflatten(leaves, structure)
        if self.expands_state:
            state = expand_state(state, plans)
        return self.cost(state, plans)


def expand_state(state: Any, plans: Tensor) -> Any:
    """Repeat a state for every plan, without a copy.

    Args:
        state: The state, shape ([B,] ...), or any nesting of tensors of such shapes.
        plans: The plans, shape ([B,] N, horizon, A).

    Returns:
        The state, shape ([B,] N, ...). All plans share its memory.
    """
    # 1 if there is a dimension of environments, otherwise 0.
    num_env_dims = plans.dim() - 3
    leading = plans.shape[: num_env_dims + 1]

    def expand(leaf: Tensor) -> Tensor:
        # Insert the dimension of plans after that of the environments.
        return leaf.unsqueeze(num_env_dims).expand(*leading, *leaf.shape[num_env_dims:])

    return pytree.tree_map(expand, state)


def rollout_cost(model: Model, final: Callable[[Any], Tensor] | None = None) -> Cost:
    """Return a cost of plans for ``Planner``: the sum of a model's costs over the horizon.

    Args:
        model: ``model(state, action) -> (next state, cost)`` for states of shape ([B,] N, ...),
            actions ([B,] N, A) and costs ([B,] N). It is called once per action of the plans.
            States may be any nesting of tensors, and the model may change them in place.
        final: A function that returns the cost of the last state, shape ([B,] N), which is
            added at the end. None: nothing is added.
    """
    cost = partial(_roll_out, model, final)
    cost.expands_state = True  # type: ignore[attr-defined]
    return cost


def _roll_out(
    model: Model, final: Callable[[Any], Tensor] | None, state: Any, plans: Tensor
) -> Tensor:
    """Return the sum of the model's costs along each plan, shape ([B,] N)."""
    state = pytree.tree_map(torch.clone, expand_state(state, plans))
    total = torch.zeros(1, dtype=plans.dtype, device=plans.device)
    for action in plans.unbind(dim=-2):
        state, step_cost = model(state, action)
        total = total + step_cost
    return total if final is None else total + final(state)
