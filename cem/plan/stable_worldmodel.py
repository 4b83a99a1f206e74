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


class CemSolver:
    """Searches plans of lowest cost in a world model; a ``Solver`` of stable-worldmodel."""

    def __init__(
        self,
        model: Any,
        batch_size: int | None = None,
        num_samples: int = 300,
        n_steps: int = 30,
        *,
        bounds: Any = None,
        device: str | torch.device = "cpu",
        seed: int = 1234,
        **options: Any,
    ) -> None:
        """Make a solver, which ``configure`` makes ready.

        Args:
            model: The world model. ``model.get_cost(info, plans)`` maps plans of shape (B, N,
                horizon, action_dim) to costs (B, N); every tensor of ``info`` has a row for
                every plan.
            batch_size: The most environments in one call of the model; None: all.
            num_samples: The plans of an iteration.
            n_steps: The iterations.
            bounds: The bounds (low, high) of actions as the model sees them, numbers or of the
                shape of an action. None: those of the action space. Pass them if actions are
                normalised.
            device: The device of the model.
            seed: The seed of all plans.
            **options: More arguments of ``Planner``.
        """
        self.model = model
        self.num_samples = num_samples
        self.n_steps = n_steps
        self.dtype = torch.float32
        if isinstance(model, torch.nn.Module):
            self.dtype = next((weight.dtype for weight in model.parameters()), self.dtype)
        self._bounds = bounds
        # Models may copy to the host, which a CUDA graph can not capture.
        self._options = {
            "graph": False,
            "batch_size": batch_size,
            "device": device,
            "seed": seed,
            "dtype": self.dtype,
            **options,
        }

    def configure(self, *, action_space: Any, n_envs: int, config: Any) -> None:
        """Make the planner of ``n_envs`` environments with a batched action space."""
        if not hasattr(action_space, "low"):
            raise TypeError(f"expected a Box of actions, got {action_space!r}")
        self._config = config
        self.n_envs = n_envs
        options = self._options
        low, high = self._bounds or (action_space.low[0], action_space.high[0])
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            options = {"std": 1.0, **options}
        dim = math.prod(action_space.shape[1:])
        bounds = np.broadcast_to(np.ravel(low), dim), np.broadcast_to(np.ravel(high), dim)
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
        self.action_dim = dim * config.action_block

    @property
    def horizon(self) -> int:
        """The number of actions of a plan."""
        return int(self._config.horizon)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Solve; see ``solve``."""
        return self.solve(*args, **kwargs)

    def solve(
        self, info_dict: dict[str, Any], init_action: Tensor | None = None
    ) -> dict[str, Any]:
        """Return plans for the environments whose information is passed.

        Args:
            info_dict: Tensors and arrays with a row per environment, for some or all. What is
                not numeric does not reach the model.
            init_action: Plans to begin with, shape (B, horizon or fewer, action_dim). Missing
                actions are those of the model's actor, or 0.

        Returns:
            "actions", the best plans, shape (B, horizon, action_dim); "costs", their costs;
            "mean" and "var", lists of the means and the standard deviations of the elites.
        """
        state = self._read_info(info_dict)
        count = len(next(iter(state.values())))
        planner = self._planner
        planner.reset()  # The caller alone knows which rows are whose, and keeps the plans.
        init = self._complete_plans(info_dict, init_action, count)
        planner.plan(state, envs=range(count), init=init)
        elites = planner.elite_plans.cpu()
        return {
            "actions": planner.best_plan.cpu(),
            "costs": planner.best_cost.tolist(),
            "mean": [elites.mean(1)],
            "var": [elites.std(1)],
        }

    def _cost(self, info: dict[str, Tensor], plans: Tensor) -> Tensor:
        costs: Tensor = self.model.get_cost(info, plans)
        return costs

    def _complete_plans(
        self, info: dict[str, Any], init: Tensor | None, count: int
    ) -> Tensor | None:
        """Return plans of ``horizon`` actions that begin with ``init``, if there are any.

        Args:
            info: The information of the environments.
            init: The first actions, shape (count, horizon or fewer, action_dim), or None.
            count: The number of environments.
        """
        missing = self.horizon - (0 if init is None else init.shape[1])
        if missing > 0 and hasattr(self.model, "get_action"):
            rest = self.model.get_action(info, horizon=missing, prefix_actions=init)
        elif init is None or missing <= 0:
            return init
        else:
            rest = init.new_zeros(count, missing, self.action_dim)
        return rest if init is None else torch.cat([init.to(rest.device), rest], dim=1)

    def _read_info(self, info: dict[str, Any]) -> dict[str, Tensor]:
        """Return the numeric values as tensors, floating-point ones in the model's dtype."""
        state = {}
        for name, value in info.items():
            if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
                value = torch.from_numpy(value)
            if torch.is_tensor(value):
                is_real = value.is_floating_point()
                state[name] = value.to(self.dtype) if is_real else value
        return state
