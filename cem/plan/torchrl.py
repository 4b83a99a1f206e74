"""A planner of TorchRL that plans by `cem.Planner`.

It replaces `torchrl.modules.CEMPlanner`, the actor for an environment with a known model.
Install it by pip install -e ".[worldmodel]".
"""

import math
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.envs.utils import step_mdp
from torchrl.modules.planners.common import MPCPlannerBase

from cem.plan.planner import Planner


class CemPlanner(MPCPlannerBase):
    """Plans in an environment of TorchRL and writes the first action of the best plan.

    Each step starts from the last plan. A new episode begins where "is_init" is true, which
    TorchRL's ``InitTracker`` sets, and when the batch size changes.
    """

    def __init__(
        self,
        env: Any,
        planning_horizon: int,
        *,
        reward_key: Any = ("next", "reward"),
        action_key: Any = "action",
        **options: Any,
    ) -> None:
        """Make a planner.

        Args:
            env: The model, an environment that accepts any batch size.
            planning_horizon: The number of actions per plan.
            reward_key: The key of the reward in a tensordict.
            action_key: The key of the action in a tensordict.
            **options: More arguments of ``Planner``, such as ``num_samples`` and
                ``iterations``.
        """
        super().__init__(env=env, action_key=action_key)
        if not hasattr(self.action_spec.space, "low"):
            raise TypeError(
                f"expected continuous actions, got {type(self.action_spec).__name__}"
            )
        self._horizon = planning_horizon
        self._reward_key = reward_key
        self._action_key = action_key
        self._options = options
        self._planner: Planner | None = None
        self._batch_size = torch.Size()

    def planning(self, tensordict: TensorDictBase) -> Tensor:
        """Return the first action of the best plan, shape (*batch_size, *action_shape).

        ``tensordict`` is the state of a batch of environments.
        """
        planner = self._planner
        if planner is None or self._batch_size != tensordict.batch_size:
            planner = self._make_planner(tensordict)
        elif "is_init" in tensordict:
            # A mask of the environments in which an episode begins.
            planner.reset(tensordict["is_init"].flatten())
        # The planner has a single dimension of environments.
        state = tensordict.reshape(-1).to_dict()
        action: Tensor = planner.plan(state)
        return action.reshape(tensordict.batch_size + self.action_spec.shape)

    def _make_planner(self, tensordict: TensorDictBase) -> Planner:
        """Make a planner for the batch size of a state.

        Store it in ``_planner``, and return it.
        """
        spec = self.action_spec
        # A model may copy tensors to the host, which a CUDA graph cannot capture.
        options: dict[str, Any] = {"graph": False, "device": spec.device, "dtype": spec.dtype}
        low = spec.space.low.flatten()
        high = spec.space.high.flatten()
        # The planner cannot derive a standard deviation from infinite bounds. Actions without
        # bounds have the smallest and the largest number, whose difference is infinite.
        third = (high - low) / 3
        options["std"] = third.where(third.isfinite(), 1.0)
        self._batch_size = tensordict.batch_size
        self._planner = Planner(
            self._cost,
            horizon=self._horizon,
            action_dim=math.prod(spec.shape),
            bounds=(low, high),
            num_envs=tensordict.numel(),
            expand_state=True,
            maximize=True,
            **{**options, **self._options},
        )
        return self._planner

    def _cost(self, state: dict[str, Any], plans: Tensor) -> Tensor:
        """Return the sum of rewards of each plan, shape (B, N).

        Rewards after the end of an episode do not count.

        Args:
            state: The state of each plan, tensors of shape (B, N, ...).
            plans: The plans, shape (B, N, horizon, A).
        """
        tensordict = TensorDict(state, batch_size=plans.shape[:2])
        total = plans.new_zeros(plans.shape[:2])
        is_running = torch.ones_like(total, dtype=torch.bool)
        for action in plans.unbind(-2):
            shaped = action.reshape(total.shape + self.action_spec.shape)
            tensordict = self.env.step(tensordict.set(self._action_key, shaped))
            reward = tensordict[self._reward_key].squeeze(-1)
            # After the end a model may return NaN, which a product with 0 would keep.
            total = total + reward.where(is_running, 0.0)
            is_running = is_running & ~tensordict["next", "done"].squeeze(-1)
            tensordict = step_mdp(tensordict)
        return total
