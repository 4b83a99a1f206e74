"""A solver of stable-worldmodel that plans by `cem.Planner`.

`WorldModelPolicy` of https://github.com/galilai-group/stable-worldmodel takes it in place of
`CEMSolver`: pip install "cem-tetris[worldmodel]".
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.plan.planner import Planner

# The options of Planner under the names of stable-worldmodel.
OWN_NAMES = {"topk": "num_elites", "var_scale": "std"}

Info = dict[str, Any]


class CemSolver:
    """Searches plans of lowest cost in a world model; a ``Solver`` of stable-worldmodel."""

    def __init__(
        self,
        model: Any = None,
        batch_size: int | None = None,
        num_samples: int = 300,
        n_steps: int = 30,
        *,
        cost: Any = None,
        bounds: Any = None,
        **options: Any,
    ) -> None:
        """Make a solver, which ``configure`` makes ready.

        Args:
            model: The world model. ``model.get_cost(info, plans)`` maps plans of shape (B, N,
                horizon, action_dim) to costs (B, N); every tensor of ``info`` has a row for
                every plan. Discrete actions are one-hot vectors.
            batch_size: The most environments in one call of the model; None: all.
            num_samples: The plans of an iteration.
            n_steps: The iterations.
            cost: The model, as versions of stable-worldmodel after 0.1.1 name it.
            bounds: The bounds (low, high) of actions as the model sees them, numbers or of the
                shape of an action. None: those of the action space. Pass them if actions are
                normalised.
            **options: More arguments of ``Planner``, such as ``device`` and ``seed``, by
                default 1234. ``topk`` is ``num_elites``, and ``var_scale`` is ``std``.
        """
        self.model = model if cost is None else cost
        self.cost = self.model
        self.num_samples = num_samples
        self.n_steps = n_steps
        self.dtype = torch.float32
        if hasattr(self.model, "parameters"):
            weights = self.model.parameters()
            self.dtype = next((weight.dtype for weight in weights), self.dtype)
        # All solvers of stable-worldmodel have this attribute.
        self._configured = False
        self._bounds = bounds
        # Models may copy to the host, which a CUDA graph can not capture.
        self._options: Info = {"graph": False, "seed": 1234, "batch_size": batch_size}
        self._options |= {OWN_NAMES.get(name, name): value for name, value in options.items()}

    def configure(self, *, action_space: Any, n_envs: int, config: Any) -> None:
        """Make the planner of ``n_envs`` environments.

        Args:
            action_space: A Box or a MultiDiscrete with a row for every environment, or the
                Discrete of one environment.
            n_envs: The number of environments.
            config: A ``PlanConfig``, of which ``horizon`` and ``action_block`` are read.
        """
        self.n_envs = n_envs
        self.horizon = config.horizon
        dim = math.prod(action_space.shape[1:])
        self.action_dim = dim * config.action_block
        bounds = _find_bounds(action_space, self._bounds, dim)
        options = {"dtype": self.dtype, **self._options}
        if isinstance(bounds, tuple) and not np.isfinite(bounds).all():
            options.setdefault("std", 1.0)
        self._planner = Planner(
            self._cost,
            horizon=config.horizon,
            action_dim=dim,
            bounds=bounds,
            num_envs=n_envs,
            num_samples=self.num_samples,
            iterations=self.n_steps,
            action_block=config.action_block,
            expand_state=True,
            **options,
        )
        self._configured = True

    def init_action_distrib(self, n_envs: int, actions: Any = None) -> tuple[Tensor, Tensor]:
        """Return the mean and the standard deviation with which a search of reals begins.

        Args:
            n_envs: The number of environments, B.
            actions: The first actions of the mean, a tensor of shape (B, horizon or fewer,
                action_dim), or None.

        Returns:
            Two tensors of shape (B, horizon, action_dim). The mean is on the device of
            ``actions``.
        """
        space = self._planner.space
        mean = space.decode(space.first_mean).cpu().repeat(n_envs, 1, 1)
        if actions is not None:
            mean = torch.cat([actions, mean[:, actions.shape[1] :].to(actions)], dim=1)
        return mean, space.first_std[: self.action_dim].cpu().expand(mean.shape)

    def solve(self, info_dict: Info, init_action: Tensor | None = None) -> Info:
        """Return plans for the environments whose information is passed.

        Args:
            info_dict: Tensors and arrays with a row per environment, for some or all. What is
                not numeric does not reach the model.
            init_action: Plans to begin with, shape (B, horizon or fewer, action_dim). Missing
                actions are those of the model's actor, or in the middle of their bounds.

        Returns:
            "actions", the best plans, shape (B, horizon, action_dim); "costs", their costs;
            "mean" and "var", lists of the means and the standard deviations of the elites as
            the model sees them.
        """
        state = self._read_info(info_dict)
        count = len(next(iter(state.values())))
        planner = self._planner
        planner.reset()  # The caller alone knows which rows are whose, and keeps the plans.
        init = self._complete_plans(info_dict, init_action, count)
        planner.plan(state, envs=range(count), init=init)
        elites = self._encode(planner.elite_plans).cpu()
        return {
            "actions": planner.best_plan.cpu(),
            "costs": planner.best_cost.tolist(),
            "mean": [elites.mean(1)],
            "var": [elites.std(1)],
        }

    __call__ = solve

    def _cost(self, info: Info, plans: Tensor) -> Any:
        return self.model.get_cost(info, self._encode(plans))

    def _encode(self, plans: Tensor) -> Tensor:
        """Return plans as the model sees them, discrete actions as one-hot vectors."""
        if plans.is_floating_point():
            return plans
        return self._planner.space.encode(plans).view(*plans.shape[:-1], -1)

    def _complete_plans(self, info: Info, init: Tensor | None, count: int) -> Tensor | None:
        """Return plans of ``horizon`` actions that begin with ``init``, or None.

        Args:
            info: The information of the environments.
            init: The first actions, shape (count, horizon or fewer, action_dim), or None.
            count: The number of environments.
        """
        missing = self.horizon - (0 if init is None else init.shape[1])
        if missing > 0 and hasattr(self.model, "get_action"):
            rest: Tensor = self.model.get_action(info, horizon=missing, prefix_actions=init)
            return rest if init is None else torch.cat([init.to(rest.device), rest], dim=1)
        return None if init is None else self.init_action_distrib(count, init)[0]

    def _read_info(self, info: Info) -> dict[str, Tensor]:
        """Return the numeric values as tensors, floating-point ones in the model's dtype."""
        state = {}
        for name, value in info.items():
            if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
                value = torch.from_numpy(value)
            if torch.is_tensor(value):
                state[name] = value.to(self.dtype) if value.is_floating_point() else value
        return state


def _find_bounds(space: Any, bounds: Any, dim: int) -> Any:
    """Return the bounds of an action, or its discrete space, as ``Planner`` takes them.

    Args:
        space: The action space, as ``CemSolver.configure`` takes it.
        bounds: The bounds (low, high) in place of those of a Box, or None.
        dim: The numbers of an action.
    """
    if not hasattr(space, "low"):
        return space[0] if hasattr(space, "nvec") else space
    low, high = bounds or (space.low[0], space.high[0])
    return np.broadcast_to(np.ravel(low), dim), np.broadcast_to(np.ravel(high), dim)
