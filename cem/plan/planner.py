"""Model-predictive control by the cross-entropy method: in every step the best actions ahead are searched.

A plan is a sequence of ``horizon`` actions. In each step of an environment a normal distribution over plans
is refined in a few iterations, and the first action of the plan found is executed. The next step begins at
the mean and with the best plans, shifted by one action; the last iteration evaluates the mean, too. That is
iCEM of C. Pinneri, S. Sawant, S. Blaes, J. Achterhold, J. Stueckler, M. Rolinek and G. Martius,
Sample-efficient Cross-Entropy Method for Real-time Planning, CoRL 2020, https://arxiv.org/abs/2008.06389.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cem.core.backend import choose_backend, mix_seed
from cem.core.bounds import ends_of
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

_WARM_UP = 3  # calls on a side stream before a capture, as torch.cuda.graph asks for


class _Memory(NamedTuple):
    """What a step leaves to the next one; B environments, plans of d = horizon * action_dim numbers."""

    mean: Tensor  # (B, d); before the first step of an episode the first one
    elites: Tensor  # (B, kept, d), the best plans of the last iteration; before the first step NaN
    generation: Tensor  # () int64: the iterations of all steps so far, which number the noise


class _Found(NamedTuple):
    """What a step finds."""

    action: Tensor  # (B, action_dim), to be executed
    best: Tensor  # (B, d), the best plan
    mean: Tensor  # (B, d), of the last distribution
    cost: Tensor  # (B,) float64, of the best plan


class Planner:
    """A controller that plans ``horizon`` actions ahead in every step and executes the first one.

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

    With ``num_envs=B`` it plans for B environments at once: states and plans have a leading dimension of B.
    A planner is a deterministic function of its seed and of the states it was given. The noise is another
    one in every step, and in every environment.

    On a CUDA device the first ``plan()`` captures all iterations in a CUDA graph, which later ones replay.
    The cost has to be capturable: no copies to the host, no branches on values. The tensors it uses are read
    at every replay; Python numbers stay as they were at the capture.
    """

    def __init__(
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
            cost: ``cost(state, plans)``: the cost of every plan, shape (N,), any real dtype, of a state as it
                was given to ``plan()`` and plans of shape (N, horizon, action_dim); with ``num_envs`` states
                (B, ...) and plans (B, N, horizon, action_dim) -> (B, N). A plan whose cost is NaN is never
                chosen. ``rollout_cost`` makes one of a model of single steps.
            horizon: Actions per plan, ``>= 1``.
            action_dim: A, numbers per action, ``>= 1``.
            bounds: (low, high) of actions, each one number or shape (A,), low < high; a Box of Gymnasium,
                ``scipy.optimize.Bounds`` or ``cem.Bounds``. Plans are clamped into them. None, or an infinite
                end: no bound; the search then begins at 0, or the end nearest to it, and needs ``std``.
            num_envs: B, environments planned for side by side; ``None``: one, without a leading dimension.
            num_samples: N, plans evaluated in the first iteration for each environment, ``>= 4``.
            iterations: Iterations per step, ``>= 1``.
            num_elites: The best plans of an iteration, to which the distribution moves, 2 to num_samples / 2.
                Default: a tenth of ``num_samples``, at least 2.
            std: The standard deviation of an action at the beginning of each step, one number or shape (A,),
                ``>= 0``; a number of 0 stays in the middle of its bounds. Default: a third of ``high - low``.
            keep: The share of the elites that are candidates again, in [0, 1]; rounded up.
            beta: The exponent of the noise's power spectrum ``1 / f^beta``, finite, ``>= 0``; 0 is white
                noise. Where actions have to stay the same for many steps to matter, try 1 to 4.
            shrink: Iteration i evaluates ``num_samples / shrink^i`` plans, rounded, twice the elites at
                least; ``>= 1``.
            momentum: The share of the old mean and standard deviation in the new ones, in [0, 1).
            execute: ``"best"``: the first action of the best plan evaluated in this step. ``"mean"``: that of
                the last mean; with a noisy cost the better choice.
            maximize: True if ``cost`` returns what shall be large, such as a sum of rewards.
            backend: As of ``CrossEntropyMethod``; backends draw different noise for the same seed.
            seed: The seed of all noise, ``0 <= seed < 2**63``, or a generator of NumPy or torch, from which
                it is drawn. ``None``: torch's global generator.
            device: The device of plans, and of the states that the cost is given.
            dtype: Of the plans: ``torch.float32`` or ``torch.float64``.
            graph: Whether to capture and replay a CUDA graph. Default: with backend ``"cuda"``.
            compile: Whether to compile the cost by ``torch.compile``: a model of many small operations is
                several times as fast then. The first ``plan()`` takes as long as the compiler.
        """
        if execute not in ("best", "mean"):
            raise ValueError(f"expected 'best' or 'mean' for execute, got {execute!r}")
        self.device, self.dtype = check_device(device), dtype
        self.backend = choose_backend(backend, self.device)
        self.horizon = check_integer("horizon", horizon, 1)
        self.action_dim = check_integer("action_dim", action_dim, 1)
        self.num_envs = None if num_envs is None else check_integer("num_envs", num_envs, 1)
        self.num_samples = check_integer("num_samples", num_samples, 4)
        self.iterations = check_integer("iterations", iterations, 1)
        elites = max(2, math.ceil(self.num_samples / 10)) if num_elites is None else num_elites
        self.num_elites = check_integer("num_elites", elites, 2, self.num_samples // 2)
        self.seed = check_integer("seed", draw_seed(seed), 0, 2**63 - 1)
        shrink, beta = check_real("shrink", shrink, 1.0), check_real("beta", beta, 0.0)
        sizes = (round(self.num_samples / shrink**i) for i in range(self.iterations))
        self._sizes = [max(2 * self.num_elites, size) for size in sizes]
        self._kept = math.ceil(check_real("keep", keep, 0.0, 1.0) * self.num_elites)
        self._smoothing = check_real("1 - momentum", 1.0 - momentum, 0.0, 1.0, open_low=True)
        self._executes_best, self._maximize = execute == "best", maximize
        self._cost = torch.compile(cost, dynamic=False if shrink == 1.0 else None) if compile else cost
        self._coloring = coloring_matrix(self.horizon, beta).to(self.device, dtype) if beta > 0 else None

        if bounds is None:
            bounds = (-math.inf, math.inf)
        elif hasattr(bounds, "low") or hasattr(bounds, "lb"):
            bounds = ends_of(bounds)
        if not hasattr(bounds, "__len__") or len(bounds) != 2:
            raise TypeError(f"expected (low, high), a Box, Bounds or None for bounds, got {bounds!r}")
        low, high = self._low, self._high = [self._actions("bounds", end) for end in bounds]
        if not bool((low < high).all()):
            raise ValueError(f"expected bounds with low < high, got {bounds!r}")
        is_finite = low.isfinite() & high.isfinite()
        if std is None and not bool(is_finite.all()):
            raise ValueError(f"expected std, or finite bounds, got {bounds!r}")
        nearest_to_zero = torch.zeros_like(low).clamp(low, high)
        self._first_mean = torch.where(is_finite, (low + high) / 2, nearest_to_zero)
        self._first_std = (high - low) / 3 if std is None else self._actions("std", std)
        check_distribution(self._first_mean, self._first_std)

        count, dim = self.num_envs or 1, self.horizon * self.action_dim
        seeds = [mix_seed(self.seed, number) >> 1 for number in range(count)]
        self._seeds = torch.tensor(seeds, device=self.device)  # of the environments, unrelated
        self._no_record = torch.full((count, FAILED + 1), math.nan, dtype=torch.float64, device=self.device)
        with torch.inference_mode(False):  # with a CUDA graph it is changed in place later
            self._memory = _Memory(
                mean=self._first_mean.expand(count, dim).clone(),
                elites=low.new_full((count, self._kept, dim), math.nan),
                generation=torch.zeros((), dtype=torch.int64, device=self.device),
            )
        self._found: _Found | None = None
        self._uses_graph = self.backend == "cuda" if graph is None else graph
        self._captured: tuple[torch.cuda.CUDAGraph, Tensor] | None = None  # and the state it reads

    @property
    def best_plan(self) -> Tensor:
        """The best plan of the last step, shape ([B,] horizon, A), a copy; RuntimeError before the first."""
        return self._plans(self._last().best)

    @property
    def best_cost(self) -> Tensor:
        """Its cost, shape ([B]), float64, a copy; NaN where no cost was usable. Waits for the device."""
        if self.device.type != "cpu":  # there plan() has warned
            self._warn_of_failure()
        return self._squeeze(self._last().cost).clone()

    @property
    def mean(self) -> Tensor:
        """The mean after the last step, shape ([B,] horizon, A), a copy; RuntimeError before the first."""
        return self._plans(self._last().mean)

    def reset(self, env_ids: Any = None) -> None:
        """Forget the last plans: an episode begins. The noise goes on, it is not repeated.

        ``env_ids``: its environments, indices or a mask of bools of shape (B,); ``None``: all.
        """
        mean, elites = self._memory.mean.clone(), self._memory.elites.clone()
        chosen: Any = ...
        if env_ids is not None:
            chosen = torch.as_tensor(env_ids, device=self.device)
            chosen = chosen if chosen.dtype == torch.bool else chosen.long()
        mean[chosen], elites[chosen] = self._first_mean, math.nan
        self._keep(self._memory._replace(mean=mean, elites=elites), self._found)

    @torch.no_grad()
    def plan(self, state: Any) -> Any:
        """Search the best plan from a state and return its first action.

        Args:
            state: The state, or the observation, of any shape; (B, ...) with ``num_envs``. Tensor, array or
                sequence of any real dtype, which it keeps.

        Returns:
            The action, a new tensor of shape ([B,] A) on the device of the planner; a NumPy array where the
            state is one. Where no plan has a usable cost (NaN, or infinite on the bad side) it is that of the
            shifted mean; a RuntimeWarning says so, on the CPU at once, on other devices, for which nothing
            waits, by ``best_cost``.
        """
        given = torch.as_tensor(as_torch_takes_it(state), device=self.device)
        if self.num_envs is not None and (given.dim() == 0 or len(given) != self.num_envs):
            raise ValueError(f"expected states of shape ({self.num_envs}, ...), got {tuple(given.shape)}")
        if self._uses_graph:
            self._replay(given)
        else:
            self._keep(*self._search(given, self._memory))
        if self.device.type == "cpu":
            self._warn_of_failure()
        action = self._squeeze(self._last().action).clone()
        return action.cpu().numpy() if isinstance(state, np.ndarray) else action

    def __getstate__(self) -> dict[str, Any]:
        """Copy and pickle without the CUDA graph, which is captured again."""
        return {**self.__dict__, "_captured": None}

    def _keep(self, memory: _Memory, found: _Found | None) -> None:
        """Keep what a step leaves and finds: where a CUDA graph reads it, in the same tensors."""
        self._found = found
        if not self._uses_graph:
            self._memory = memory
            return
        for old, new in zip(self._memory, memory, strict=True):
            old.copy_(new)

    def _replay(self, state: Tensor) -> None:
        """Search in a CUDA graph, captured for states of this shape and dtype."""
        with torch.cuda.device(self.device):
            captured = self._captured
            if captured and (captured[1].shape, captured[1].dtype) == (state.shape, state.dtype):
                captured[1].copy_(state)
            else:
                static, graph = state.clone(), torch.cuda.CUDAGraph()
                current, side = torch.cuda.current_stream(), torch.cuda.Stream()
                side.wait_stream(current)
                with torch.cuda.stream(side):
                    for _ in range(_WARM_UP):
                        self._search(static, self._memory)
                current.wait_stream(side)
                with torch.cuda.graph(graph):
                    self._keep(*self._search(static, self._memory))
                captured = self._captured = graph, static
            captured[0].replay()

    def _warn_of_failure(self) -> None:
        failed = self._last().cost.isnan()
        if bool(failed.any()):
            where = "" if self.num_envs is None else f" in environments {failed.nonzero()[:, 0].tolist()}"
            warnings.warn(
                f"no plan has a usable cost{where}: all are NaN or infinite on the bad side, and the action "
                "is that of the mean before",
                RuntimeWarning,
                stacklevel=outside(),
            )

    def _last(self) -> _Found:
        if self._found is None:
            raise RuntimeError("expected plan() before what it found is read")
        return self._found

    def _squeeze(self, batch: Tensor) -> Tensor:
        """Drop the leading dimension of environments where the caller has none."""
        return batch[0] if self.num_envs is None else batch

    def _plans(self, batch: Tensor) -> Tensor:
        plans: Tensor = self._squeeze(batch).unflatten(-1, (self.horizon, self.action_dim))
        return plans.clone()

    def _actions(self, name: str, value: Any) -> Tensor:
        """Return a number of each dimension of an action as one of each dimension of a plan, shape (d,)."""
        action = check_vector(name, value, torch.Size([self.action_dim]), self.dtype, self.device)
        return action.repeat(self.horizon)

    def _search(self, state: Tensor, memory: _Memory) -> tuple[_Memory, _Found]:
        """Search the best plan from a state; return what this step leaves, and what it found: new tensors.

        A CUDA graph may capture it: it waits for nothing, and changes nothing but what is made here.
        """
        kept, actions, generation = self._kept, self.action_dim, memory.generation
        shifted = memory.mean[:, actions:], memory.mean[:, -actions:]
        # The mean is the best plan until one has a usable cost.
        rows = [*shifted, self._first_std.expand_as(memory.mean), *shifted, *shifted]
        distribution, record = torch.cat(rows, dim=1).unflatten(1, (4, -1)), self._no_record
        update = cem_update_reference if self.backend == "torch" else cem_update
        candidates = self._draw(distribution, self._sizes[0], generation)
        drawn, old = candidates[:, :kept, :-actions], memory.elites[..., actions:]
        torch.where(old.isnan(), drawn, old, out=drawn)  # the action that enters the horizon is a drawn one
        for next_size in (*self._sizes[1:], 0):
            if next_size == 0:
                candidates[:, kept] = distribution[:, MEAN]
            costs = self._evaluate(state, candidates)
            distribution, record, generation, ranking = update(
                costs,
                candidates,
                distribution,
                record,
                generation,
                self.num_elites,
                maximize=self._maximize,
                variance_about="new_mean_unbiased",
                smoothing=self._smoothing,
                std_smoothing=self._smoothing,
            )
            plans, elites = candidates, torch.empty_like(memory.elites)
            if next_size > 0:
                candidates = self._draw(distribution, next_size, generation)
                elites = candidates[:, :kept]
            if len(plans) == 1:  # on a GPU gather takes twice as long
                torch.index_select(plans[0], 0, ranking[0, :kept], out=elites[0])
            else:
                torch.gather(plans, 1, ranking[:, :kept, None].expand_as(elites), out=elites)
        mean, best = distribution[:, MEAN], distribution[:, BEST]
        action = (best if self._executes_best else mean)[:, :actions]
        return _Memory(mean, elites, generation), _Found(action, best, mean, record[:, BEST_FITNESS])

    def _draw(self, distribution: Tensor, size: int, generation: Tensor) -> Tensor:
        """Draw plans and clamp them into the bounds; shape (B, size, d)."""
        numbers: dict[str, Any] = {"seed": self._seeds, "generation": generation}
        bounds, mean, std = (self._low, self._high), distribution[:, MEAN], distribution[:, STD]
        if self.backend == "torch":
            generator = torch.Generator(mean.device)
            generator.manual_seed(mix_seed(int(self._seeds[0]), int(generation)))
            shape = (len(mean), size, mean.shape[1])
            noise = torch.randn(shape, generator=generator, dtype=mean.dtype, device=mean.device)
        elif self._coloring is None:
            return sample_normal_rows(distribution, size, bounds=bounds, **numbers)
        else:
            standard = torch.stack([torch.zeros_like(mean), torch.ones_like(mean)], dim=1)
            noise = sample_normal_rows(standard, size, **numbers)
        if self._coloring is not None:
            series = noise.view(*noise.shape[:2], self.action_dim, self.horizon)
            with torch.autocast(noise.device.type, enabled=False):
                noise = (series @ self._coloring).transpose(2, 3).reshape(noise.shape)
        return torch.addcmul(mean[:, None], std[:, None], noise).clamp(*bounds)

    def _evaluate(self, state: Tensor, plans: Tensor) -> Tensor:
        """Return the costs of plans, shape (B, N)."""
        size = plans.shape[1]
        expected = (size,) if self.num_envs is None else (self.num_envs, size)
        shaped = plans.view(*expected, self.horizon, self.action_dim)
        found = call_with_copies(self._cost, state, shaped)
        return check_shape("costs", found, expected).to(plans.device).reshape(-1, size)


Model = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""``model(state, action) -> (next state, cost)`` of one step."""


def rollout_cost(model: Model, final: Callable[[Tensor], Tensor] | None = None) -> Cost:
    """Make a cost of plans, for ``Planner``, of a model of single steps: the sum over the horizon.

    Args:
        model: ``model(state, action) -> (next state, cost)``: states of shape ([B,] N, ...) and actions of
            shape ([B,] N, A) give states and costs ([B,] N). It is called once for each action of the plans.
        final: What is added at the end: the cost of the last state, shape ([B,] N). ``None``: nothing.
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


def coloring_matrix(length: int, beta: float) -> Tensor:
    """Return the matrix that colours white noise: ``matrix @ z`` has the power spectrum ``1 / f^beta``.

    As in J. Timmer and M. Koenig, On Generating Power Law Noise, Astronomy and Astrophysics 300, 1995, the
    Fourier coefficients are independent normal numbers with standard deviations of ``f^(-beta / 2)``: a
    circular convolution of white noise. Frequency 0 has the power of the lowest frequency above it. Each
    element of the noise is N(0, 1), and the covariance of two depends on their circular distance alone. The
    matrix, (length, length) and float64, is symmetric. A ``beta`` of 0 is white, 1 pink, 2 red noise.
    """
    frequencies = torch.fft.rfftfreq(length, dtype=torch.float64)
    frequencies[0] = frequencies[min(1, length // 2)]
    lowest = frequencies.min().clamp(min=0.5 / length)
    scale = (frequencies / lowest).clamp(min=1.0) ** (-beta / 2)  # at most 1: no beta is too great
    row: Tensor = torch.fft.irfft(scale.to(torch.complex128), length)
    row = row / row.square().sum().sqrt()
    step = torch.arange(length)
    matrix: Tensor = row[(step[:, None] - step) % length]
    return matrix
