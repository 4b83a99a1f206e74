"""Model-predictive control by the cross-entropy method.

A plan is a sequence of ``horizon`` actions. In each step of an environment, a few iterations
refine a distribution over plans. Then the first action of the best plan is executed. The
iterations are in `search.py`, the methods in `options.py`.
"""

import math
from typing import Any

import torch
from torch import Tensor

from cem.core.backend import choose_backend
from cem.core.checks import Seed, as_real, check_device, check_shape, draw_seed, warn
from cem.plan.costs import Cost, PlanCost
from cem.plan.memory import Memory, make_memory
from cem.plan.noise import Noise
from cem.plan.options import choose_options
from cem.plan.replay import Replayer
from cem.plan.search import Result, Search, Task
from cem.plan.spaces import find_action_dim, make_space
from cem.plan.states import is_of_numpy, read_state
from cem.plan.update import Update
from kernels.support.checks import check_integer

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Planner:
    """A controller that plans several actions ahead in every step and executes the first one.

    Examples:
        >>> import torch
        >>> from cem import Planner
        >>> def cost(position, plans):  # (2,) and (N, 10, 2) -> (N,)
        ...     return (position + plans.cumsum(-2)).square().sum((-2, -1))
        >>> planner = Planner(cost, horizon=10, action_dim=2, bounds=(-1.0, 1.0), seed=1)
        >>> position = torch.tensor([3.0, -2.0])
        >>> for _ in range(8):
        ...     position = position + planner.plan(position)  # (2,)
        >>> bool((position.abs() < 0.5).all())
        True

    With ``num_envs=B`` it plans for B environments at once: states and plans have a leading
    dimension of B. The actions are a function of the seed and of all states so far. Every step
    and every environment has different noise.

    On a CUDA device the first ``plan()`` captures all iterations in a CUDA graph, and later
    calls replay it. The cost must be capturable: it must not copy to the host, nor branch on
    the values of tensors. Every replay reads the tensors that the cost uses, but Python numbers
    keep the values that they had at the capture.
    """

    # Gradient steps and CUDA graphs refuse tensors that were made in inference mode.
    @torch.inference_mode(False)
    def __init__(  # noqa: PLR0913 - an option for each setting
        self,
        cost: Cost,
        horizon: int,
        action_dim: int | None = None,
        bounds: Any = None,
        *,
        method: str | None = None,
        num_envs: int | None = None,
        action_block: int | None = None,
        expand_state: bool = False,
        batch_size: int | None = None,
        chunk: int | None = None,
        maximize: bool = False,
        backend: str = "auto",
        seed: Seed = None,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        graph: bool | None = None,
        compile: bool = False,  # noqa: A002 - as in torch
        **options: Any,
    ) -> None:
        """Make a planner.

        Args:
            cost: ``cost(state, plans)`` returns the cost of every plan, shape (N,), any real
                dtype. ``state`` is the argument of ``plan()``, and plans have shape (N,
                horizon, action_dim). With ``num_envs`` states are (B, ...), plans (B, N,
                horizon, action_dim) and costs (B, N). A plan whose cost is NaN is never an
                elite. ``rollout_cost`` makes a cost from a model of single steps.
            horizon: The number of actions per plan, ``>= 1``.
            action_dim: A, the number of numbers per action, ``>= 1``. None: that of ``bounds``,
                if they are a space or two vectors.
            bounds: The bounds (low, high) of actions, each a number or of shape (A,), low <
                high; or a Box of Gymnasium, ``scipy.optimize.Bounds`` or ``cem.Bounds``. None
                or an infinite end means no bound. Then ``std`` is required, and the search
                begins at 0 or at the end nearest to 0. For discrete actions pass a ``Discrete``
                or ``MultiDiscrete`` of Gymnasium or a ``cem.families.Categorical``; their plans
                are int64. An action of a ``Discrete`` has shape (1,), but the environment
                expects a number: pass ``action.item()`` to it. For vector environments of
                Gymnasium pass the ``single_action_space``.
            method: ``"cem"``, ``"icem"``, ``"mppi"`` or ``"tdmpc2"``: use the options of a
                published method in place of the defaults below. Options that are passed as
                arguments take precedence. None: the defaults.
            num_envs: B, the number of environments that are planned for at once. None: one
                environment, without a leading dimension.
            action_block: k, the number of successive actions of the environment that make one
                action of a plan. Plans then have shape (..., horizon, k A), and ``plan()``
                returns k actions, shape (..., k, A).
            expand_state: Whether the cost gets a state for every plan, shape (N, ...) or (B, N,
                ...). These states share memory, so the cost must not change them in place.
            batch_size: The maximum number of environments per call of the cost. None: all.
            chunk: The maximum number of plans of an environment per call of the cost. None:
                all. It does not change the result if the cost of a plan does not depend on the
                other plans.
            maximize: True if a greater ``cost`` is better, such as a sum of rewards.
            backend: As for ``CrossEntropyMethod``; backends draw different noise for the same
                seed.
            seed: The seed of all noise, ``0 <= seed < 2**63``, or a generator of NumPy or torch
                that draws it. None: torch's global generator.
            device: The device of plans, and of the states that the cost gets.
            dtype: The dtype of plans: ``torch.float32`` or ``torch.float64``.
            graph: Whether to capture and replay a CUDA graph. Default: True with backend
                ``"cuda"``.
            compile: Whether to compile the cost, and the update by a temperature, by
                ``torch.compile``, which makes a model of many small operations several times as
                fast. The first ``plan()`` waits for the compiler.
            **options: The options of the search:

                num_samples: N, the number of plans evaluated in the first iteration for each
                    environment, ``>= 4``. Default: 100.
                iterations: The number of iterations per step, ``>= 1``. Default: 4.
                num_elites: The number of elites, the plans of an iteration towards which the
                    distribution moves: 2 to num_samples / 2, or with a temperature to
                    num_samples. A number up to 1 is a share of num_samples, rounded to at least
                    3 elites. Default: a twentieth of num_samples, but at least a third of the
                    number of iterations.
                keep: The share of the elites that are candidates again in the next iteration,
                    in [0, 1]; rounded up. Default: 0.5.
                shrink: Iteration i evaluates ``num_samples / shrink^i`` plans, rounded, but at
                    least twice the number of elites; ``>= 1``. Default: 1.
                momentum: The share of the old mean and standard deviation in the new ones, in
                    [0, 1). Default: 0.
                temperature: The elites have weights of ``exp(-cost / temperature)``. Default:
                    None, equal weights.
                std: The standard deviation of an action at the beginning of each step, a number
                    or of shape (A,), ``>= 0``. An action with 0 stays in the middle of its
                    bounds. Default: a third of ``high - low``. For discrete actions: the share
                    of the uniform distribution at the beginning of each step, in [0, 1].
                    Default: 0.5.
                min_std, max_std: The limits of standard deviations after an iteration, except
                    of those that begin at 0. Default: no limits.
                adapt_std: False: the standard deviation does not change. Default: True.
                beta: The exponent of the noise's power spectrum ``1 / f^beta``, finite, ``>=
                    0``; 0 is white noise. If an action only has an effect after many steps, try
                    1 to 4. Default: 0.
                knots: The number of knots of a spline through the actions. The knots are
                    searched instead of the actions. Default: None, no spline.
                spline: ``"zero"``, ``"linear"`` or ``"cubic"``; see
                    ``cem.plan.spline.spline_matrix``. Default: ``"cubic"``.
                bound_handling: ``"clamp_plans"``: an action outside its bounds is clamped to
                    them for the cost. Where it was drawn counts for the distribution, up to a
                    standard deviation outside, so that the mean can reach a bound.
                    ``"clamp"``: it is clamped for the distribution, too, as iCEM, MPPI and
                    TD-MPC2 do. ``"resample"``: it is drawn again, from the truncated normal
                    distribution. Default: ``"clamp_plans"``.
                execute: The plan whose first action is executed. ``"best"``: the best plan
                    evaluated in this step. ``"mean"``: the last mean, which is better if the
                    cost is noisy. ``"sample"``: an elite of the last iteration, drawn with
                    probabilities proportional to the weights. Default: ``"best"``.
                gradient_steps: The number of gradient steps that elites take before they are
                    candidates again, ``>= 0``; each is one more forward and backward pass of
                    ``keep`` of the elites. The cost must be differentiable. Default: 0.
        """
        self.options = choose_options(method, options)
        self.device = check_device(device)
        self.dtype = dtype
        self.backend = choose_backend(backend, self.device)
        self.horizon = check_integer("horizon", horizon, 1)
        if action_dim is None:
            action_dim = find_action_dim(bounds)
        self.action_dim = check_integer("action_dim", action_dim, 1)
        self.action_block = _check_optional("action_block", action_block)
        self.num_envs = _check_optional("num_envs", num_envs)
        self.seed = check_integer("seed", draw_seed(seed), 0, 2**63 - 1)
        noise = Noise(self.seed, self.num_envs or 1, self.backend, self.device)
        like = torch.empty((), dtype=dtype, device=self.device)
        block = self.action_block or 1
        space = make_space(self.horizon, self.action_dim, block, bounds, self.options, like)
        space.set_noise(noise, self.options.beta, self.options.bound_handling)
        update = Update(self.options, space.first_std, maximize, self.backend)
        if expand_state and getattr(cost, "expands_state", False):
            raise ValueError(
                "expected expand_state=False with rollout_cost, which expands the state itself"
            )
        if compile:
            # Without `shrink`, every iteration has the same number of plans, and all shapes are
            # static.
            dynamic = False if self.options.shrink == 1.0 else None
            cost = torch.compile(cost, dynamic=dynamic)
            update.compile(dynamic)
        plan_cost = PlanCost(
            cost,
            has_envs=self.num_envs is not None,
            expands_state=expand_state,
            batch_size=_check_optional("batch_size", batch_size),
            chunk=_check_optional("chunk", chunk),
        )
        self.space = space
        self._search = Search(plan_cost, space, noise, update, self.options)
        self._memory = make_memory(
            space.first_mean, self.num_envs or 1, self.options.num_reused
        )
        self._result: Result | None = None
        self._planned_envs: Tensor | None = None
        self._replayer: Replayer | None = None
        if graph is None:
            graph = self.backend == "cuda"
        if graph:
            self._replayer = Replayer(self._search.step, self.device)

    @property
    def best_plan(self) -> Tensor:
        """A copy of the best plan of the last step, shape ([B,] horizon, A).

        B is the number of environments in that step. Before the first step this property and
        those below raise RuntimeError.
        """
        return self._decode(self._last_result().best)

    @property
    def best_cost(self) -> Tensor:
        """The cost of the best plan, shape ([B]), float64; NaN if no cost was usable.

        Reading it waits for the device.
        """
        if self.device.type != "cpu":  # on the CPU plan() has warned already
            self._warn_of_failure()
        return self._copy(self._last_result().cost)

    @property
    def mean(self) -> Tensor:
        """A copy of the mean after the last step, shape ([B,] horizon, A)."""
        return self._decode(self._last_result().mean)

    @property
    def elite_plans(self) -> Tensor:
        """The elites of the last iteration, the best first, shape ([B,] K, horizon, A)."""
        return self._decode(self._last_result().elites)

    @property
    def elite_costs(self) -> Tensor:
        """The costs of ``elite_plans``, shape ([B,] K), in the dtype of the cost."""
        return self._copy(self._last_result().elite_costs)

    def reset(self, env_ids: Any = None) -> None:
        """Forget the last plans at the beginning of an episode. The noise does not repeat.

        Args:
            env_ids: The environments, as indices or a boolean mask of shape (B,). None: all.
        """
        mean = self._memory.mean.clone()
        elites = self._memory.elites.clone()
        envs: Any = ...
        if env_ids is not None:
            envs = self._read_envs(env_ids)
        mean[envs] = self.space.first_mean
        elites[envs] = math.nan
        self._remember(self._memory._replace(mean=mean, elites=elites))

    @torch.no_grad()
    def plan(
        self,
        state: Any,
        *,
        envs: Any = None,
        shift: int = 1,
        init: Any = None,
        proposals: Any = None,
    ) -> Any:
        """Search for the best plan from a state and return its first action.

        If every plan has failed (its cost is NaN or infinitely bad), return the action of the
        shifted mean, and emit a RuntimeWarning. On a GPU ``plan`` does not wait for the costs,
        so the warning is only emitted when ``best_cost`` is read.

        Args:
            state: The state or observation: a tensor, an array or a sequence of numbers, or a
                dict or another nesting of them. With ``num_envs`` each has the shape (B, ...),
                otherwise any shape.
            envs: The environments to plan for, as indices or a boolean mask of shape (B,). The
                state has one row per environment, in this order, and so has the result. Other
                environments keep their last plans and their noise. None: all environments.
            shift: The number of actions of the last plan that were executed since the last
                call, ``>= 0``. 0 plans again for the same step.
            init: Plans that replace the last mean as the start, shape ([B,] horizon, A).
            proposals: Plans that are candidates in every iteration, such as the plans of a
                policy, shape ([B,] P, horizon, A). With ``knots`` the spline nearest to a
                proposal takes its place, as for ``init``.

        Returns:
            The action, a new tensor of shape ([B,] A) on the planner's device, or a NumPy array
            if the state is one.
        """
        task = self._make_task(state, envs, init, proposals)
        shift = check_integer("shift", shift, 0)
        self._planned_envs = task.envs
        if self._replayer is None:
            self._memory, self._result = self._search.step(task, self._memory, shift)
        else:
            # The replayed CUDA graph updates the memory in place.
            self._result = self._replayer.take_step(task, self._memory, shift)
        if self.device.type == "cpu":
            self._warn_of_failure()
        first_actions = self._result.executed[:, 0]  # (B, horizon, A) -> (B, A)
        # Without ``num_envs`` B is 1, and `_copy` also removes this dimension.
        action = self._copy(first_actions)
        if self.action_block is not None:
            # An action of a plan is a block of several actions of the environment.
            action = action.unflatten(-1, (self.action_block, self.action_dim))
        return action.cpu().numpy() if is_of_numpy(state) else action

    def _make_task(self, state: Any, envs: Any, init: Any, proposals: Any) -> Task:
        """Check and convert the arguments of ``plan()``, which explains them."""
        env_ids = None
        num_envs = self.num_envs
        if envs is not None:
            if num_envs is None:
                raise ValueError("expected a planner with num_envs for envs, got one without")
            env_ids = self._read_envs(envs)
            num_envs = len(env_ids)
        # The dimensions before (horizon, action). ``proposals`` have one more, their number.
        leading = [] if num_envs is None else [num_envs]
        if init is not None:
            init = self._read_plans("init", init, leading)
        if proposals is not None:
            num_proposals = self._count_proposals(proposals)
            proposals = self._read_plans("proposals", proposals, [*leading, num_proposals])
        return Task(read_state(state, num_envs, self.device), env_ids, init, proposals)

    def _read_envs(self, envs: Any) -> Tensor:
        """Return environments, indices or a boolean mask, as int64 indices on the device.

        Raises:
            ValueError: If an index is out of range or occurs twice, or the mask has another
                shape.
        """
        ids = torch.as_tensor(envs)
        num_envs = self.num_envs or 1
        is_mask = ids.dtype == torch.bool and ids.shape == (num_envs,)
        if is_mask:
            ids = ids.nonzero().squeeze(-1)
        # An empty list becomes a tensor of floats, so its dtype does not matter.
        is_integer = ids.numel() == 0 or ids.dtype not in (torch.bool, *_FLOATS)
        is_inside = (ids >= 0) & (ids < num_envs)
        is_valid = (
            ids.dim() == 1
            and is_integer
            and is_inside.all()
            and len(ids.unique()) == len(ids)  # all are different
        )
        if not is_valid:
            expected = (
                f"a mask of shape ({num_envs},), or different environments below {num_envs}"
            )
            raise ValueError(f"expected {expected}, got {ids.tolist()}")
        return ids.to(self.device, torch.int64)

    def _count_proposals(self, proposals: Any) -> int:
        """Return the number of proposals per environment; raise ValueError if it is too large.

        ``proposals`` has shape ([B,] P, horizon, A).
        """
        shape = as_real("proposals", proposals).shape
        # With fewer dimensions the shape is wrong, which a later check reports.
        count = shape[-3] if len(shape) > 2 else 1
        # An iteration also needs room for the reused elites, the mean, and one drawn vector.
        most = min(self.options.sizes) - self.options.num_reused - 2
        return check_integer("the number of proposals", count, 1, most)

    def _read_plans(self, name: str, plans: Any, leading: list[int]) -> Tensor:
        """Return plans of shape (*leading, horizon, A) as a tensor on the device.

        The result always has a dimension of environments, even if the planner has only one.
        """
        action_size = self.action_dim * (self.action_block or 1)
        shape = (*leading, self.horizon, action_size)
        tensor = check_shape(name, plans, shape)
        if tensor.device.type == "cpu":  # a check on another device would wait for it
            self.space.check_plans(name, tensor)
        tensor = tensor.to(self.device)
        return tensor.unsqueeze(0) if self.num_envs is None else tensor

    def _remember(self, memory: Memory) -> None:
        """Store a memory. With a CUDA graph, which reads it, its tensors are overwritten."""
        if self._replayer is None:
            self._memory = memory
        else:
            self._memory.overwrite(memory)

    def _warn_of_failure(self) -> None:
        """Warn if, in some environment, no plan of the last step had a usable cost."""
        # ``cost`` is that of the best plan of each environment, and NaN if no cost is usable.
        has_failed = self._last_result().cost.isnan()
        if not has_failed.any():
            return
        where = ""
        if self.num_envs is not None:
            failed_envs = has_failed.nonzero().flatten()
            if self._planned_envs is not None:
                # Row i of the results belongs to environment _planned_envs[i].
                failed_envs = self._planned_envs[failed_envs]
            where = f" in environments {failed_envs.tolist()}"
        warn(
            f"no plan has a usable cost{where}: all are NaN or infinite on the bad side, and "
            "the action is that of the mean before"
        )

    def _last_result(self) -> Result:
        if self._result is None:
            raise RuntimeError("expected plan() before its result is read")
        return self._result

    def _decode(self, vectors: Tensor) -> Tensor:
        """Return the plans of vectors (B, ..., d); without ``num_envs`` only the first row."""
        return self._copy(self.space.decode(vectors))

    def _copy(self, batch: Tensor) -> Tensor:
        """Return a copy of a tensor (B, ...); without ``num_envs`` only its first row."""
        return (batch[0] if self.num_envs is None else batch).clone()


def _check_optional(name: str, value: int | None) -> int | None:
    """Return ``value``, which has to be None or an integer that is at least 1."""
    return None if value is None else check_integer(name, value, 1)
