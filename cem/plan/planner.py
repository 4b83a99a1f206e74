"""Model-predictive control by the cross-entropy method: in every step the best actions ahead are searched.

A plan is a sequence of ``horizon`` actions. In each step of an environment a normal distribution over plans
is refined in a few iterations, the first action of the plan found is executed, and the next step goes on from
there. The improvements over the plain method are those of C. Pinneri, S. Sawant, S. Blaes, J. Achterhold, J.
Stueckler, M. Rolinek and G. Martius, Sample-efficient Cross-Entropy Method for Real-time Planning (iCEM),
CoRL 2020, https://arxiv.org/abs/2008.06389:

* warm start: a search begins at the mean of the last step, shifted by one action;
* memory: the best plans of an iteration are candidates of the next one, and those of the last iteration,
  shifted by one action, are candidates of the next step;
* noise that is coloured in time, see ``cem.plan.colored_noise``;
* a population that shrinks from iteration to iteration;
* momentum: mean and standard deviation keep a share of their old values;
* the mean is a candidate of the last iteration, and the best plan found is executed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.backend import choose_backend, mix_seed
from cem.core.checks import as_torch_takes_it, check_device, check_distribution, check_real, check_vector
from cem.plan.colored_noise import coloring_matrix
from cem.plan.plan_search import Cost, Found, Memory, PlanSearch
from kernels.support.checks import check_flags, check_integer

_MOST = (1 << 31) - 1  # of every count
_WARM_UP = 3  # calls on a side stream before a capture, as torch.cuda.graph asks for


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
        bounds: tuple[Any, Any],
        *,
        num_envs: int | None = None,
        num_samples: int = 100,
        iterations: int = 4,
        num_elites: int | None = None,
        mean: Any = None,
        std: Any = None,
        keep: float = 0.5,
        beta: float = 0.0,
        shrink: float = 1.0,
        momentum: float = 0.1,
        execute: str = "best",
        maximize: bool = False,
        backend: str = "auto",
        seed: int | None = None,
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
                chosen. It must not change the plans. ``rollout_cost`` makes one of a model of single steps.
            horizon: Actions a plan, ``>= 1``.
            action_dim: A, numbers an action, ``>= 1``.
            bounds: (low, high) of actions, each one number or shape (A,), finite, low < high. Plans are
                clamped into them.
            num_envs: B, environments that are planned for side by side; ``None``: one, without a leading
                dimension.
            num_samples: N, plans that are evaluated in the first iteration for each environment, ``>= 4``.
            iterations: Iterations a step, ``>= 1``.
            num_elites: The best plans of an iteration, to which the distribution moves: in
                2..num_samples / 2. Default: a tenth of ``num_samples``, at least 2.
            mean: The first mean of an action, one number or shape (A,), within the bounds. Default: the
                middle of the bounds.
            std: The standard deviation of an action at the beginning of each step, one number or shape (A,),
                ``>= 0``; a number of 0 stays at its mean. Default: a third of ``high - low``.
            keep: The share of the elites that are candidates again, in [0, 1]; rounded up.
            beta: The exponent of the noise's power spectrum ``1 / f^beta``, finite, ``>= 0``; 0 is white
                noise. Where actions have to stay the same for many steps to matter, try 1 to 4.
            shrink: Iteration i evaluates ``num_samples / shrink^i`` plans, rounded, twice the elites at
                least; ``>= 1``.
            momentum: The share of the old mean and standard deviation in the new ones, in [0, 1).
            execute: ``"best"``: the first action of the best plan evaluated in this step. ``"mean"``: that of
                the last mean; with a noisy cost the better choice.
            maximize: True if ``cost`` returns what shall be large, such as a sum of rewards.
            backend: ``"cpu"`` or ``"cuda"``: noise and update are this package's operators; ``"torch"``:
                PyTorch operations, which need no compiler and are slower; ``"auto"``: the operators where
                they work. They draw different noise for the same seed.
            seed: The seed of all noise, ``0 <= seed < 2**63``. ``None``: drawn from torch's global generator.
            device: The device of plans, and of the states that the cost is given.
            dtype: Of the plans: ``torch.float32`` or ``torch.float64``.
            graph: Whether to capture and replay a CUDA graph. Default: with backend ``"cuda"``.
            compile: Whether to compile the cost by ``torch.compile``: a model of many small operations is
                several times as fast then. The first ``plan()`` takes as long as the compiler.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If one is out of range or has a wrong shape, or the device is not available.
        """
        if not callable(cost):
            raise TypeError(f"expected a function for cost, got {type(cost).__name__}")
        check_flags(maximize=maximize, compile=compile, graph=False if graph is None else graph)
        if not isinstance(dtype, torch.dtype) or dtype not in (torch.float32, torch.float64):
            raise ValueError(f"expected torch.float32 or torch.float64 for dtype, got {dtype!r}")
        if not isinstance(execute, str) or execute not in ("best", "mean"):
            raise ValueError(f"expected 'best' or 'mean' for execute, got {execute!r}")
        self.device, self.dtype = check_device(device), dtype
        self.backend = choose_backend(backend, self.device)
        self.horizon = check_integer("horizon", horizon, 1, _MOST)
        self.action_dim = check_integer("action_dim", action_dim, 1, _MOST)
        self.num_envs = None if num_envs is None else check_integer("num_envs", num_envs, 1, _MOST)
        self.num_samples = check_integer("num_samples", num_samples, 4, _MOST)
        self.iterations = check_integer("iterations", iterations, 1, _MOST)
        elites = max(2, math.ceil(self.num_samples / 10)) if num_elites is None else num_elites
        self.num_elites = check_integer("num_elites", elites, 2, self.num_samples // 2)
        self.seed = (
            int(torch.randint(2**63 - 1, ())) if seed is None else check_integer("seed", seed, 0, 2**63 - 1)
        )
        momentum = check_real("momentum", momentum, 0.0, 1.0, open_high=True)
        shrink = check_real("shrink", shrink, 1.0)
        sizes = (round(self.num_samples / shrink**i) for i in range(self.iterations))
        beta = check_real("beta", beta, 0.0)
        coloring = coloring_matrix(self.horizon, beta).to(self.device, dtype) if beta > 0 else None

        low, high = self._check_bounds(bounds)
        first_mean = (low + high) / 2 if mean is None else self._actions("mean", mean)
        first_std = (high - low) / 3 if std is None else self._actions("std", std)
        check_distribution(first_mean, first_std)
        if not bool(((low <= first_mean) & (first_mean <= high)).all()):
            raise ValueError(f"expected a mean within the bounds {bounds!r}, got {mean!r}")
        self._search = PlanSearch(
            cost=torch.compile(cost, dynamic=False if shrink == 1.0 else None) if compile else cost,
            batch=() if self.num_envs is None else (self.num_envs,),
            horizon=self.horizon,
            action_dim=self.action_dim,
            sizes=tuple(max(2 * self.num_elites, size) for size in sizes),
            num_elites=self.num_elites,
            kept=math.ceil(check_real("keep", keep, 0.0, 1.0) * self.num_elites),
            smoothing=1.0 - momentum,
            executes_best=execute == "best",
            maximize=maximize,
            mean=first_mean,
            std=first_std,
            low=low,
            high=high,
            coloring=coloring,
            seed=_seeds(self.seed, self.num_envs or 1).to(self.device),
            backend=self.backend,
        )
        with torch.inference_mode(False):  # with a CUDA graph it is changed in place later
            self._memory = self._search.begin()
        self._found: Found | None = None
        self._uses_graph = self.backend == "cuda" if graph is None else graph
        if self._uses_graph and self.backend != "cuda":
            raise ValueError(
                f"expected backend 'cuda' for graph=True, got {self.backend!r} on {str(self.device)!r}"
            )
        self._captured: tuple[torch.cuda.CUDAGraph, Tensor] | None = None  # and the state it reads

    @property
    def best_plan(self) -> Tensor:
        """The best plan of the last step, shape ([B,] horizon, A); a copy.

        Raises:
            RuntimeError: Before the first ``plan()``.
        """
        return self._plans(self._last().best)

    @property
    def best_cost(self) -> Tensor:
        """Its cost, shape ([B]), float64; NaN where every cost was. A copy.

        Raises:
            RuntimeError: Before the first ``plan()``.
        """
        return self._squeeze(self._last().cost).clone()

    @property
    def mean(self) -> Tensor:
        """The mean of the distribution after the last step, shape ([B,] horizon, A); a copy."""
        return self._plans(self._memory.mean)

    def reset(self, env_ids: Any = None) -> None:
        """Forget the last plans: an episode begins. The noise goes on, it is not repeated.

        Args:
            env_ids: Indices, or a mask of bools of shape (B,), of the environments whose episode begins:
                tensor, array or sequence. ``None``: all.
        """
        if env_ids is None:
            started = torch.zeros_like(self._memory.started)
        else:
            chosen = torch.as_tensor(as_torch_takes_it(env_ids), device=self.device)
            started = self._memory.started.clone()
            if not (chosen.dtype == torch.bool or chosen.is_floating_point()):
                chosen = chosen.long()
            if chosen.numel():  # an empty list is no tensor of integers
                started[chosen] = False
        self._keep(self._memory._replace(started=started))

    @torch.no_grad()
    def plan(self, state: Any) -> Any:
        """Search the best plan from a state and return its first action.

        Args:
            state: The state, or the observation, of any shape; (B, ...) with ``num_envs``. Tensor, array or
                sequence of any real dtype, which it keeps.

        Returns:
            The action, a new tensor of shape (A,) or (B, A) on the device of the planner; a NumPy array where
            the state is one. Where no plan has a usable cost it is that of the shifted mean.

        Raises:
            TypeError: If the state or the costs are not real numbers.
            ValueError: If one of them has a wrong shape.
        """
        given = torch.as_tensor(as_torch_takes_it(state), device=self.device)
        if self.num_envs is not None and (given.dim() == 0 or len(given) != self.num_envs):
            raise ValueError(f"expected states of shape ({self.num_envs}, ...), got {tuple(given.shape)}")
        if self._uses_graph:
            self._replay(given)
        else:
            self._step(given)
        action = self._squeeze(self._last().action).clone()
        if isinstance(state, np.ndarray):
            return action.cpu().numpy()
        return action

    def __getstate__(self) -> dict[str, Any]:
        """Copy and pickle without the CUDA graph, which is captured again."""
        return {**self.__dict__, "_captured": None}

    def _step(self, state: Tensor) -> None:
        after, self._found = self._search(state, self._memory)
        self._keep(after)

    def _keep(self, memory: Memory) -> None:
        """Keep what a step leaves to the next one: where a CUDA graph reads it, in the same tensors."""
        if not self._uses_graph:
            self._memory = memory
            return
        for old, new in zip(self._memory, memory, strict=True):
            old.copy_(new)

    def _replay(self, state: Tensor) -> None:
        """Search in a CUDA graph, captured for states of this shape and dtype."""
        with torch.cuda.device(self.device):
            if self._captured is not None and _like(self._captured[1]) == _like(state):
                self._captured[1].copy_(state)
            else:
                self._captured = self._capture(state.clone())
            self._captured[0].replay()

    def _capture(self, state: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        current, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._search(state, self._memory)
        current.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(state)
        return graph, state

    def _last(self) -> Found:
        if self._found is None:
            raise RuntimeError("expected plan() before what it found is read")
        return self._found

    def _squeeze(self, batch: Tensor) -> Tensor:
        """Return what has a leading dimension of environments as the caller sees it."""
        return batch[0] if self.num_envs is None else batch

    def _plans(self, batch: Tensor) -> Tensor:
        plans: Tensor = self._squeeze(batch).unflatten(-1, (self.horizon, self.action_dim))
        return plans.clone()

    def _actions(self, name: str, value: Any) -> Tensor:
        """Return a number of each dimension of an action as one of each dimension of a plan, shape (d,)."""
        return check_vector(name, value, torch.Size([self.action_dim]), self.dtype, self.device).repeat(
            self.horizon
        )

    def _check_bounds(self, bounds: Any) -> tuple[Tensor, Tensor]:
        if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
            raise TypeError(f"expected (low, high) for bounds, got {bounds!r}")
        low, high = (self._actions(f"bounds[{side}]", bounds[side]) for side in (0, 1))
        if not bool((low.isfinite() & high.isfinite() & (low < high)).all()):
            raise ValueError(f"expected finite bounds with low < high, got {bounds!r}")
        return low, high


def _like(tensor: Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def _seeds(seed: int, count: int) -> Tensor:
    """Return unrelated seeds for environments, shape (count,), int64."""
    return torch.tensor([mix_seed(seed, number) >> 1 for number in range(count)])
