"""Model-predictive control by the cross-entropy method.

A plan is a sequence of ``horizon`` actions. In each step of an environment a normal
distribution over plans is refined in a few iterations, and the first action of the best plan is
executed. The next step begins with the mean and the best plans of the last one, shifted by one
action. The last iteration also evaluates the mean. This is iCEM of C. Pinneri, S. Sawant, S.
Blaes, J. Achterhold, J. Stueckler, M. Rolinek and G. Martius, Sample-efficient Cross-Entropy
Method for Real-time Planning, CoRL 2020, https://arxiv.org/abs/2008.06389.
"""

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cem.core.backend import choose_backend, mix_seed
from cem.core.bounds import Box, ends_of
from cem.core.checks import (
    Seed,
    as_torch_takes_it,
    check_device,
    check_distribution,
    check_real,
    check_shape,
    check_vector,
    draw_seed,
    outside,
)
from cem.core.evaluation import call_with_copies
from cem.core.state import BEST, BEST_FITNESS, FAILED, MEAN, STD
from kernels.ops.cem_update import cem_update, cem_update_reference
from kernels.ops.normal import sample_normal_rows
from kernels.support.checks import check_integer

Cost = Callable[[Tensor, Tensor], Any]
"""``cost(state, plans)``: plans of shape ([B,] N, horizon, A) -> costs of shape ([B,] N)."""

_WARM_UP = 3  # calls on a side stream before a capture, as torch.cuda.graph requires


class _Memory(NamedTuple):
    """What a step passes to the next one, for B environments and plans of d numbers.

    Attributes:
        mean: The mean of the last distribution, shape (B, d); at the start of an episode the
            first.
        elites: The best plans of the last iteration, shape (B, reused, d); at the start NaN.
        generation: The number of iterations of all steps so far, shape (), int64, which numbers
            the noise.
    """

    mean: Tensor
    elites: Tensor
    generation: Tensor


class _Result(NamedTuple):
    """The result of a step.

    Attributes:
        action: The action to be executed, shape (B, action_dim).
        best: The best plan, shape (B, d).
        mean: The mean of the last distribution, shape (B, d).
        cost: The cost of the best plan, shape (B,), float64.
    """

    action: Tensor
    best: Tensor
    mean: Tensor
    cost: Tensor


class Planner:
    """A controller that plans some actions ahead in every step and executes the first one.

    Examples:
        >>> import torch
        >>> from cem import Planner
        >>> def cost(position, plans):  # (2,) and (N, 10, 2) -> (N,)
        ...     return (position + plans.cumsum(-2)).square().sum((-2, -1))
        >>> planner = Planner(cost, horizon=10, action_dim=2, bounds=(-1.0, 1.0), seed=1)
        >>> position = torch.tensor([3.0, -2.0])
        >>> for _ in range(8):
        ...     position = position + planner.plan(position)  # (2,)
        >>> bool((position.abs() < 0.2).all())
        True

    With ``num_envs=B`` it plans for B environments at once: states and plans have a leading
    dimension of B. Its actions are a function of its seed and of all states so far. Every step
    and every environment has different noise.

    On a CUDA device the first ``plan()`` captures all iterations in a CUDA graph, which later
    calls replay. The cost must be capturable: no copies to the host, no branches on values. The
    tensors it uses are read at every replay; Python numbers stay as they were at the capture.
    """

    def __init__(  # noqa: PLR0913 - an option for each setting
        self,
        cost: Cost,
        horizon: int,
        action_dim: int,
        bounds: Any,
        *,
        num_envs: int | None = None,
        num_samples: int = 100,
        iterations: int = 4,
        num_elites: int | None = None,
        std: Any = None,
        keep: float = 0.5,
        beta: float = 0.0,
        shrink: float = 1.0,
        momentum: float = 0.1,
        execute: str = "best",
        maximize: bool = False,
        backend: str = "auto",
        seed: Seed = None,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        graph: bool | None = None,
        compile: bool = False,  # noqa: A002 - as in torch
    ) -> None:
        """Make a planner.

        Args:
            cost: ``cost(state, plans)`` returns the cost of every plan, shape (N,), any real
                dtype. The state is that of ``plan()``, and plans have shape (N, horizon,
                action_dim). With ``num_envs`` states are (B, ...), plans (B, N, horizon,
                action_dim) and costs (B, N). A plan whose cost is NaN is never chosen.
                ``rollout_cost`` makes a cost from a model of single steps.
            horizon: Actions per plan, ``>= 1``.
            action_dim: A, numbers per action, ``>= 1``.
            bounds: The bounds (low, high) of actions, each a number or of shape (A,), low <
                high; or a Box of Gymnasium, ``scipy.optimize.Bounds`` or ``cem.Bounds``. Plans
                are clamped into them. None, or an infinite end: no bound; the search then
                begins at 0, or at the end nearest to it, and ``std`` is required.
            num_envs: B, the environments planned for side by side. None: one, without a leading
                dimension.
            num_samples: N, plans evaluated in the first iteration for each environment, ``>=
                4``.
            iterations: Iterations per step, ``>= 1``.
            num_elites: How many plans of an iteration the distribution moves to, 2 to
                num_samples / 2. Default: a tenth of ``num_samples``, at least 2.
            std: The standard deviation of an action at the beginning of each step, a number or
                of shape (A,), ``>= 0``; with 0 it stays in the middle of its bounds. Default: a
                third of ``high - low``.
            keep: The share of the elites that are candidates again, in [0, 1]; rounded up.
            beta: The exponent of the noise's power spectrum ``1 / f^beta``, finite, ``>= 0``; 0
                is white noise. If an action only has an effect after many steps, try 1 to 4.
            shrink: Iteration i evaluates ``num_samples / shrink^i`` plans, rounded, but at
                least twice the elites; ``>= 1``.
            momentum: The share of the old mean and standard deviation in the new ones, in [0,
                1).
            execute: ``"best"``: the first action of the best plan evaluated in this step.
                ``"mean"``: that of the last mean, which is better if the cost is noisy.
            maximize: True if a greater ``cost`` is better, such as a sum of rewards.
            backend: As for ``CrossEntropyMethod``; backends draw different noise for the same
                seed.
            seed: The seed of all noise, ``0 <= seed < 2**63``, or a generator of NumPy or torch
                that draws it. None: torch's global generator.
            device: The device of plans, and of the states that the cost gets.
            dtype: The dtype of plans: ``torch.float32`` or ``torch.float64``.
            graph: Whether to capture and replay a CUDA graph. Default: with backend ``"cuda"``.
            compile: Whether to compile the cost by ``torch.compile``, which makes a model of
                many small operations several times as fast. The first ``plan()`` waits for the
                compiler.
        """
        if execute not in ("best", "mean"):
            raise ValueError(f"expected 'best' or 'mean' for execute, got {execute!r}")
        self.device = check_device(device)
        self.dtype = dtype
        self.backend = choose_backend(backend, self.device)
        self.horizon = check_integer("horizon", horizon, 1)
        self.action_dim = check_integer("action_dim", action_dim, 1)
        if num_envs is not None:
            num_envs = check_integer("num_envs", num_envs, 1)
        self.num_envs = num_envs
        self.num_samples = check_integer("num_samples", num_samples, 4)
        self.iterations = check_integer("iterations", iterations, 1)
        if num_elites is None:
            num_elites = max(2, math.ceil(self.num_samples / 10))
        self.num_elites = check_integer("num_elites", num_elites, 2, self.num_samples // 2)
        self.seed = check_integer("seed", draw_seed(seed), 0, 2**63 - 1)
        check_real("shrink", shrink, 1.0)
        check_real("beta", beta, 0.0)
        sizes = [round(self.num_samples / shrink**i) for i in range(self.iterations)]
        self._sizes = [max(2 * self.num_elites, size) for size in sizes]
        self._num_reused = math.ceil(check_real("keep", keep, 0.0, 1.0) * self.num_elites)
        smoothing = check_real("1 - momentum", 1.0 - momentum, 0.0, 1.0, open_low=True)
        self._update = partial(
            cem_update_reference if self.backend == "torch" else cem_update,
            num_elites=self.num_elites,
            maximize=maximize,
            variance_about="new_mean_unbiased",
            smoothing=smoothing,
            std_smoothing=smoothing,
        )
        self._executes_best = execute == "best"
        if compile:
            cost = torch.compile(cost, dynamic=False if shrink == 1.0 else None)
        self._cost = cost
        self._coloring: Tensor | None = None
        if beta > 0:
            self._coloring = coloring_matrix(self.horizon, beta).to(self.device, dtype)

        self._bounds = self._check_bounds(bounds)
        self._first_mean, self._first_std = self._build_start(bounds, std)
        low = self._bounds[0]
        count = self.num_envs or 1
        seeds = [mix_seed(self.seed, number) >> 1 for number in range(count)]
        self._seeds = torch.tensor(seeds, device=self.device)  # one per environment, unrelated
        self._no_record = low.new_full((count, FAILED + 1), math.nan, dtype=torch.float64)
        dim = self.horizon * self.action_dim
        with torch.inference_mode(False):  # with a CUDA graph these change in place later
            self._memory = _Memory(
                mean=self._first_mean.expand(count, dim).clone(),
                elites=low.new_full((count, self._num_reused, dim), math.nan),
                generation=torch.zeros((), dtype=torch.int64, device=self.device),
            )
        self._result: _Result | None = None
        self._uses_graph = self.backend == "cuda" if graph is None else graph
        # The graph, and the tensor from which it reads the state.
        self._captured: tuple[torch.cuda.CUDAGraph, Tensor] | None = None

    def _build_start(self, bounds: Any, std: Any) -> tuple[Tensor, Tensor]:
        """Return the mean and the standard deviation of a plan at the start of an episode.

        Both have shape (horizon * action_dim,), and belong to one environment. ``bounds`` and
        ``std`` are the arguments of the constructor.
        """
        low, high = self._bounds
        is_finite = low.isfinite() & high.isfinite()
        if std is None and not is_finite.all():
            raise ValueError(f"expected std, or finite bounds, got {bounds!r}")
        middle = (low + high) / 2
        nearest_to_zero = torch.zeros_like(middle).clamp(low, high)
        mean = torch.where(is_finite, middle, nearest_to_zero)
        first_std = (high - low) / 3 if std is None else self._repeat_action("std", std)
        check_distribution(mean, first_std)
        return mean, first_std

    @property
    def best_plan(self) -> Tensor:
        """A copy of the best plan of the last step, shape ([B,] horizon, A).

        Raises RuntimeError before the first step, as do ``best_cost`` and ``mean``.
        """
        return self._as_plans(self._last_result().best)

    @property
    def best_cost(self) -> Tensor:
        """The cost of the best plan, shape ([B]), float64; NaN if no cost was usable.

        Waits for the device.
        """
        if self.device.type != "cpu":  # on the CPU plan() has warned
            self._warn_of_failure()
        return self._squeeze(self._last_result().cost).clone()

    @property
    def mean(self) -> Tensor:
        """A copy of the mean after the last step, shape ([B,] horizon, A)."""
        return self._as_plans(self._last_result().mean)

    def reset(self, env_ids: Any = None) -> None:
        """Forget the last plans, because an episode begins. The noise is not repeated.

        Args:
            env_ids: The environments, as indices or a mask of bools of shape (B,). None: all.
        """
        mean = self._memory.mean.clone()
        elites = self._memory.elites.clone()
        envs: Any = ...
        if env_ids is not None:
            envs = torch.as_tensor(env_ids, device=self.device)
            if envs.dtype != torch.bool:
                envs = envs.long()
        mean[envs] = self._first_mean
        elites[envs] = math.nan
        self._remember(self._memory._replace(mean=mean, elites=elites), self._result)

    @torch.no_grad()
    def plan(self, state: Any) -> Any:
        """Search the best plan from a state and return its first action.

        Args:
            state: The state or observation of any shape, with ``num_envs`` (B, ...): a tensor,
                array or sequence of any real dtype.

        Returns:
            The action, a new tensor of shape ([B,] A) on the device of the planner, or a NumPy
            array if the state is one. If no plan has a usable cost, because all are NaN or
            infinite on the bad side, it is that of the shifted mean. A RuntimeWarning says so:
            on the CPU at once; on other devices, for which nothing waits, when ``best_cost`` is
            read.
        """
        tensor = torch.as_tensor(as_torch_takes_it(state), device=self.device)
        if self.num_envs is not None and (tensor.dim() == 0 or len(tensor) != self.num_envs):
            expected = f"states of shape ({self.num_envs}, ...)"
            raise ValueError(f"expected {expected}, got {tuple(tensor.shape)}")
        if self._uses_graph:
            self._search_by_graph(tensor)
        else:
            self._remember(*self._search(tensor, self._memory))
        if self.device.type == "cpu":
            self._warn_of_failure()
        action = self._squeeze(self._last_result().action).clone()
        return action.cpu().numpy() if isinstance(state, np.ndarray) else action

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without the CUDA graph, which a copy captures again."""
        return {**self.__dict__, "_captured": None}

    def _remember(self, memory: _Memory, result: _Result | None) -> None:
        """Store what a step returned; a CUDA graph reads the memory from the same tensors."""
        self._result = result
        if not self._uses_graph:
            self._memory = memory
            return
        for old, new in zip(self._memory, memory, strict=True):
            old.copy_(new)

    def _search_by_graph(self, state: Tensor) -> None:
        """Search by a CUDA graph, captured again for states of another shape or dtype."""
        with torch.cuda.device(self.device):
            if self._captured is not None:
                graph, static_state = self._captured
                if (static_state.shape, static_state.dtype) == (state.shape, state.dtype):
                    static_state.copy_(state)
                    graph.replay()
                    return
            graph, _ = self._captured = self._capture(state.clone())
            graph.replay()

    def _capture(self, state: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """Capture a search in a CUDA graph, without running it.

        Returns:
            The graph, and the tensor from which every replay reads the state. A replay also
            reads the memory of the planner and overwrites it with the next one.
        """
        # torch.cuda.graph requires that the work has run on a side stream before.
        current_stream = torch.cuda.current_stream()
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(current_stream)
        with torch.cuda.stream(side_stream):
            for _ in range(_WARM_UP):
                self._search(state, self._memory)
        current_stream.wait_stream(side_stream)

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            next_memory, result = self._search(state, self._memory)
            self._remember(next_memory, result)
        return graph, state

    def _warn_of_failure(self) -> None:
        """Warn if the last step had no plan with a usable cost, and in which environments.

        The cost of the best plan, one per environment, is then NaN.
        """
        has_failed = self._last_result().cost.isnan()
        if not has_failed.any():
            return
        envs = ""
        if self.num_envs is not None:
            indices = has_failed.nonzero().flatten().tolist()
            envs = f" in environments {indices}"
        warnings.warn(
            f"no plan has a usable cost{envs}: all are NaN or infinite on the bad side, and "
            "the action is that of the mean before",
            RuntimeWarning,
            stacklevel=outside(),
        )

    def _last_result(self) -> _Result:
        if self._result is None:
            raise RuntimeError("expected plan() before its result is read")
        return self._result

    def _squeeze(self, batch: Tensor) -> Tensor:
        """Drop the dimension of environments if the planner has a single one."""
        return batch[0] if self.num_envs is None else batch

    def _as_plans(self, batch: Tensor) -> Tensor:
        """Return copies of plans (B, d) in the shape ([B,] horizon, A)."""
        plans: Tensor = self._squeeze(batch).unflatten(-1, (self.horizon, self.action_dim))
        return plans.clone()

    def _repeat_action(self, name: str, value: Any) -> Tensor:
        """Return the value of actions, a number or (A,), as one of plans, shape (d,)."""
        action_shape = torch.Size([self.action_dim])
        action = check_vector(name, value, action_shape, self.dtype, self.device)
        return action.repeat(self.horizon)

    def _check_bounds(self, bounds: Any) -> Box:
        """Return the lower and upper bounds of plans, each of shape (horizon * action_dim,).

        Args:
            bounds: The bounds of an action: a pair (low, high) of numbers or vectors; a Box of
                Gymnasium, which has ``low`` and ``high``; SciPy's Bounds, which has ``lb`` and
                ``ub``; or None for no bounds.
        """
        if bounds is None:
            bounds = (-math.inf, math.inf)
        elif hasattr(bounds, "low") or hasattr(bounds, "lb"):
            bounds = ends_of(bounds)
        if not hasattr(bounds, "__len__") or len(bounds) != 2:
            expected = "(low, high), a Box, Bounds or None for bounds"
            raise TypeError(f"expected {expected}, got {bounds!r}")
        low = self._repeat_action("bounds", bounds[0])
        high = self._repeat_action("bounds", bounds[1])
        if not (low < high).all():
            raise ValueError(f"expected bounds with low < high, got {bounds!r}")
        return low, high

    def _search(self, state: Tensor, memory: _Memory) -> tuple[_Memory, _Result]:
        """Search for the best plan from a state; return the next memory and the result.

        Every iteration draws plans from a normal distribution, evaluates them, and moves the
        distribution towards the elites, the plans of least cost. The best plans are evaluated
        again in the next iteration, in which they replace the first of the plans drawn.

        Plans have shape (B, N, d): B environments, N plans, and d = horizon * action_dim
        numbers, one action after another. The distribution has shape (B, 4, d): its rows MEAN
        and STD, and the best plan so far in row BEST. A CUDA graph may capture this function,
        because it never waits for the GPU and writes only to tensors that it creates.
        """
        num_reused = self._num_reused
        distribution = self._first_distribution(memory)
        record = self._no_record  # its column BEST_FITNESS is the least cost so far
        generation = memory.generation
        plans = self._draw(distribution, self._sizes[0], generation)
        self._insert_last_elites(plans, memory.elites)
        for next_size in self._sizes[1:]:
            costs = self._evaluate(state, plans)
            # The ranking, shape (B, N), has the indices of plans from the best to the worst.
            distribution, record, generation, ranking = self._update(
                costs, plans, distribution, record, generation
            )
            next_plans = self._draw(distribution, next_size, generation)
            self._copy_best(plans, ranking, out=next_plans[:, :num_reused])
            plans = next_plans
        # The last iteration also evaluates the mean, in place of the first plan that was drawn.
        plans[:, num_reused] = distribution[:, MEAN]
        costs = self._evaluate(state, plans)
        distribution, record, generation, ranking = self._update(
            costs, plans, distribution, record, generation
        )
        elites = torch.empty_like(memory.elites)
        self._copy_best(plans, ranking, out=elites)

        mean = distribution[:, MEAN]
        best = distribution[:, BEST]
        executed = best if self._executes_best else mean
        action = executed[:, : self.action_dim]
        result = _Result(action, best, mean, cost=record[:, BEST_FITNESS])
        return _Memory(mean, elites, generation), result

    def _insert_last_elites(self, plans: Tensor, elites: Tensor) -> None:
        """Replace the first plans of a step, in place, by the elites of the step before.

        The first action of an elite has been executed, so that all others move forward by one
        action; the last action stays the one that was drawn. At the start of an episode there
        are no elites, their numbers are NaN, and the plans stay as they were drawn.

        Args:
            plans: The plans drawn, shape (B, N, d), with d = horizon * action_dim.
            elites: The elites, shape (B, reused, d).
        """
        shifted = elites[..., self.action_dim :]
        # This is a view: what is written to it is written to the plans.
        replaced = plans[:, : self._num_reused, : -self.action_dim]
        torch.where(shifted.isnan(), replaced, shifted, out=replaced)

    def _copy_best(self, plans: Tensor, ranking: Tensor, out: Tensor) -> None:
        """Copy the best plans (B, N, d) of each environment to ``out``, (B, reused, d).

        The ranking, shape (B, N), has the indices of the plans from the best to the worst.
        """
        best = ranking[:, : self._num_reused]
        if len(plans) == 1:  # gather takes twice as long on a GPU
            torch.index_select(plans[0], 0, best[0], out=out[0])
        else:
            torch.gather(plans, 1, best.unsqueeze(-1).expand_as(out), out=out)

    def _first_distribution(self, memory: _Memory) -> Tensor:
        """Return the first ``State.distribution`` of a step, shape (B, 4, d).

        Its mean is the last one, shifted by one action, and the last action is repeated. It is
        also the best plan until a plan has a usable cost.
        """
        action_dim = self.action_dim
        shifted = memory.mean[:, action_dim:], memory.mean[:, -action_dim:]
        # Every step begins with the first standard deviation: only the mean is reused.
        std = self._first_std.expand_as(memory.mean)
        rows = [*shifted, std, *shifted, *shifted]
        distribution: Tensor = torch.cat(rows, dim=1).unflatten(1, (4, -1))
        return distribution

    def _draw(self, distribution: Tensor, size: int, generation: Tensor) -> Tensor:
        """Return plans drawn from a normal distribution and clamped into the bounds.

        Args:
            distribution: The mean and standard deviation of every number of a plan, in rows
                MEAN and STD, shape (B, 4, d): B environments, d = horizon * action_dim.
            size: N, the plans of one environment.
            generation: The number of iterations so far, shape (). With the seeds of the
                environments it determines the noise.

        Returns:
            The plans, shape (B, N, d).
        """
        coloring = self._coloring  # None: white noise
        seed = self._seeds
        bounds = self._bounds
        if coloring is None and self.backend != "torch":
            return sample_normal_rows(
                distribution, size, seed=seed, generation=generation, bounds=bounds
            )
        mean = distribution[:, MEAN]
        std = distribution[:, STD]
        if self.backend == "torch":
            generator = torch.Generator(mean.device)
            generator.manual_seed(mix_seed(int(seed[0]), int(generation)))
            shape = (len(mean), size, mean.shape[1])
            noise = mean.new_empty(shape).normal_(generator=generator)
        else:
            standard_normal = torch.stack(
                [torch.zeros_like(mean), torch.ones_like(mean)], dim=1
            )
            noise = sample_normal_rows(standard_normal, size, seed=seed, generation=generation)
        if coloring is not None:
            noise = self._color(noise, coloring)
        return torch.addcmul(mean[:, None], std[:, None], noise).clamp(*bounds)

    def _color(self, noise: Tensor, coloring: Tensor) -> Tensor:
        """Return white noise (B, N, d) as noise whose spectrum over time is ``1 / f^beta``.

        The d numbers of white noise may be read in any order: here they are a series of
        ``horizon`` steps for every dimension of an action, which the symmetric matrix
        ``coloring`` correlates in time. The result has the order of a plan: all dimensions of
        the first step, then all of the second one.
        """
        series = noise.view(*noise.shape[:2], self.action_dim, self.horizon)
        with torch.autocast(noise.device.type, enabled=False):
            colored = series @ coloring
        return colored.transpose(2, 3).reshape(noise.shape)

    def _evaluate(self, state: Tensor, plans: Tensor) -> Tensor:
        """Return the costs of plans, shape (B, N)."""
        size = plans.shape[1]
        expected = (size,) if self.num_envs is None else (self.num_envs, size)
        shaped = plans.view(*expected, self.horizon, self.action_dim)
        costs = check_shape("costs", call_with_copies(self._cost, state, shaped), expected)
        return costs.to(plans.device).reshape(-1, size)


Model = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""``model(state, action)`` returns (next state, cost) of one step."""


def rollout_cost(model: Model, final: Callable[[Tensor], Tensor] | None = None) -> Cost:
    """Return a cost of plans for ``Planner``: the sum of a model's costs over the horizon.

    Args:
        model: ``model(state, action) -> (next state, cost)`` for states of shape ([B,] N, ...),
            actions ([B,] N, A) and costs ([B,] N). It is called once per action of the plans.
        final: The cost of the last state, shape ([B,] N), which is added at the end. None:
            nothing.
    """

    def cost(state: Tensor, plans: Tensor) -> Tensor:
        *batch, size, _, _ = plans.shape
        batch_dims = len(batch)
        state = state.unsqueeze(batch_dims).expand(*batch, size, *state.shape[batch_dims:])
        total = torch.zeros(1, dtype=plans.dtype, device=plans.device)
        for action in plans.unbind(dim=-2):
            state, step_cost = model(state, action)
            total = total + step_cost
        return total if final is None else total + final(state)

    return cost


def coloring_matrix(length: int, beta: float) -> Tensor:
    """Return a symmetric matrix M with which M z has the power spectrum ``1 / f^beta``.

    Here z is white noise. As in J. Timmer and M. Koenig, On Generating Power Law Noise,
    Astronomy and Astrophysics 300, 1995, the Fourier coefficients are independent normal
    numbers with standard deviations of ``f^(-beta / 2)``, which is a circular convolution of
    white noise. Frequency 0 has the power of the lowest frequency above it. Each element of M z
    is N(0, 1), and the covariance of two elements only depends on their circular distance. A
    ``beta`` of 0 is white, 1 pink, 2 red noise.

    Returns:
        The matrix, shape (length, length), float64.
    """
    frequencies = torch.fft.rfftfreq(length, dtype=torch.float64)
    frequencies[0] = frequencies[min(1, length // 2)]
    lowest = frequencies.min().clamp(min=0.5 / length)
    scale = (frequencies / lowest).clamp(min=1.0) ** (-beta / 2)  # at most 1: never overflows
    row: Tensor = torch.fft.irfft(scale.to(torch.complex128), length)
    row = row / row.square().sum().sqrt()
    steps = torch.arange(length)
    matrix: Tensor = row[(steps[:, None] - steps) % length]
    return matrix
