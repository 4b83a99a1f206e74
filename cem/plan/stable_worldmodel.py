"""A solver of stable-worldmodel that plans by `cem.Planner`.

`WorldModelPolicy` of https://github.com/galilai-group/stable-worldmodel accepts it in place of
its own `CEMSolver`. Install it by pip install -e ".[worldmodel]".
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.checks import as_torch_takes_it
from cem.plan.planner import Planner

# The names of stable-worldmodel for options, and the names of Planner.
OWN_NAMES = {"topk": "num_elites", "var_scale": "std"}

Info = dict[str, Any]


class CemSolver:
    """A ``Solver`` of stable-worldmodel: it searches a world model for plans of lowest cost."""

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
        """Make a solver. Call ``configure`` before ``solve``.

        Args:
            model: The world model. ``model.get_cost(info, plans)`` returns the costs of plans,
                shape (B, N). The plans have shape (B, N, horizon, action_dim), and every tensor
                of ``info`` has a row for every plan. Discrete actions are one-hot vectors.
            batch_size: The maximum number of environments per call of the model. None: all.
            num_samples: The number of plans per iteration.
            n_steps: The number of iterations.
            cost: The name of ``model`` in versions of stable-worldmodel after 0.1.1. Pass only
                one of the two.
            bounds: The bounds (low, high) of the actions that the model gets. Each is a number
                or has the shape of an action. Pass them if actions are normalised. None: the
                bounds of the action space.
            **options: More arguments of ``Planner``, such as ``device`` and ``seed``; the
                default of ``seed`` is 1234. ``num_elites`` may also be called ``topk``, and
                ``std`` may be called ``var_scale``.
        """
        self.model = model if cost is None else cost
        self.cost = self.model
        self.num_samples = num_samples
        self.n_steps = n_steps
        self.dtype = torch.float32
        if hasattr(self.model, "parameters"):
            # The model gets plans in the dtype of its first weight.
            weights = self.model.parameters()
            self.dtype = next((weight.dtype for weight in weights), self.dtype)
        # stable-worldmodel reads this attribute of every solver.
        self._configured = False
        self._bounds = bounds
        # A CUDA graph cannot capture a model that copies tensors to the host, so it is not used
        # by default.
        self._options: Info = {"graph": False, "seed": 1234, "batch_size": batch_size}
        self._options |= {OWN_NAMES.get(name, name): value for name, value in options.items()}

    def configure(self, *, action_space: Any, n_envs: int, config: Any) -> None:
        """Make the planner for ``n_envs`` environments.

        Args:
            action_space: A Box or MultiDiscrete with a row for every environment, or the
                Discrete of one environment.
            n_envs: The number of environments.
            config: A ``PlanConfig`` of stable-worldmodel. Its ``horizon`` and ``action_block``
                are used.
        """
        self.n_envs = n_envs
        self.horizon = config.horizon
        # The first dimension of the action space is that of environments.
        dim = math.prod(action_space.shape[1:])
        self.action_dim = dim * config.action_block
        bounds = _find_bounds(action_space, self._bounds, dim)
        # The planner searches in float32 for a model of half precision.
        dtype = torch.promote_types(self.dtype, torch.float32)
        options = {"dtype": dtype, **self._options}
        if isinstance(bounds, tuple) and not np.isfinite(bounds).all():
            # The planner cannot derive a standard deviation from infinite bounds.
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
        """Return the initial mean and standard deviation of a search, for real actions.

        Args:
            n_envs: The number of environments, B.
            actions: The first actions of the mean, a tensor of shape (B, horizon or fewer,
                action_dim). None: all actions are those of the planner's initial mean.

        Returns:
            The mean and the standard deviation, each of shape (B, horizon, action_dim). The
            mean is on the device of ``actions``.
        """
        space = self._planner.space
        mean = space.decode(space.first_mean).cpu().repeat(n_envs, 1, 1)
        if actions is not None:
            mean = torch.cat([actions, mean[:, actions.shape[1] :].to(actions)], dim=1)
        return mean, space.first_std[: self.action_dim].cpu().expand(mean.shape)

    def solve(self, info_dict: Info, init_action: Tensor | None = None) -> Info:
        """Return plans for B environments, at most the ``n_envs`` of ``configure``.

        Args:
            info_dict: Tensors and arrays with a row for each of the B environments. Values that
                are not numeric are not passed to the model.
            init_action: Plans from which the search starts, shape (B, horizon or fewer,
                action_dim). The model's actor adds the missing actions. Without an actor they
                are in the middle of their bounds.

        Returns:
            A dict with the items

            - "actions": the best plans, shape (B, horizon, action_dim);
            - "costs": the costs of the best plans, a list;
            - "mean", "var": lists of one tensor, the mean and the standard deviation of the
              elites as the model sees them.
        """
        state = self._read_info(info_dict)
        num_envs = len(next(iter(state.values())))
        planner = self._planner
        # Rows may belong to other environments than in the last call, so the planner must not
        # reuse its last plans. The caller passes them as ``init_action``.
        planner.reset()
        init = self._complete_plans(info_dict, init_action, num_envs)
        planner.plan(state, envs=range(num_envs), init=init)
        elites = self._encode(planner.elite_plans).cpu()
        return {
            "actions": planner.best_plan.cpu(),
            "costs": planner.best_cost.tolist(),
            "mean": [elites.mean(1)],
            "var": [elites.std(1)],
        }

    __call__ = solve

    def _cost(self, info: Info, plans: Tensor) -> Any:
        return self.model.get_cost(info, self._encode(plans).to(self.dtype))

    def _encode(self, plans: Tensor) -> Tensor:
        """Return plans as the model sees them: discrete actions become one-hot vectors."""
        if plans.is_floating_point():
            return plans
        return self._planner.space.encode(plans).view(*plans.shape[:-1], -1)

    def _complete_plans(self, info: Info, init: Tensor | None, num_envs: int) -> Tensor | None:
        """Return plans of ``horizon`` actions that begin with ``init``.

        The model's actor adds the missing actions. Without an actor, the planner's initial mean
        has them.

        Args:
            info: The information about the environments.
            init: The first actions, shape (num_envs, horizon or fewer, action_dim), or None.
            num_envs: The number of environments.

        Returns:
            The plans; None if there are no actions to begin with.
        """
        num_missing = self.horizon - (0 if init is None else init.shape[1])
        has_actor = hasattr(self.model, "get_action")
        if num_missing > 0 and has_actor:
            if init is not None and init.is_floating_point():
                init = init.to(self.dtype)
            rest: Tensor = self.model.get_action(info, horizon=num_missing, prefix_actions=init)
            return rest if init is None else torch.cat([init.to(rest.device), rest], dim=1)
        if init is None:
            return None
        plans, _ = self.init_action_distrib(num_envs, init)
        return plans

    def _read_info(self, info: Info) -> dict[str, Tensor]:
        """Return the numeric values as tensors; real numbers get the dtype of the model."""
        state = {}
        for name, value in info.items():
            # Only arrays of bools, integers ("i" and "u") and floats can become tensors.
            if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
                value = torch.from_numpy(as_torch_takes_it(value))
            if torch.is_tensor(value):
                state[name] = value.to(self.dtype) if value.is_floating_point() else value
        return state


def _find_bounds(space: Any, bounds: Any, dim: int) -> Any:
    """Return the bounds of an action, or its discrete space, in a form for ``Planner``.

    Args:
        space: The action space, as for ``CemSolver.configure``.
        bounds: The bounds (low, high) that replace those of a Box, or None.
        dim: The number of numbers per action.
    """
    is_discrete = not hasattr(space, "low")
    if is_discrete:
        # A MultiDiscrete, which has `nvec`, has a row for every environment. All are equal.
        return space[0] if hasattr(space, "nvec") else space
    # A Box also has a row for every environment.
    low, high = (space.low[0], space.high[0]) if bounds is None else bounds
    return np.broadcast_to(np.ravel(low), dim), np.broadcast_to(np.ravel(high), dim)
