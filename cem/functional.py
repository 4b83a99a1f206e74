"""The cross-entropy method as pure functions of a state: ``init``, ``ask``, ``tell``.

    candidates, state = ask(state)               x_i ~ N(mu_t, Sigma_t)                     i = 1 .. N
    state = tell(state, candidates, f(candidates))

A state is a NamedTuple of tensors with any leading batch dimensions: each of thousands of problems has its
own distribution, seed and record, and one call moves all of them. Nothing is changed in place and nothing
waits for the device, so the functions work in ``torch.compile(fullgraph=True)`` and in CUDA graphs.

>>> import torch
>>> from cem.functional import ask, init, tell
>>> state = init(torch.full((8, 5), 3.0), 1.0, 100, maximize=False, seed=1)  # 8 problems
>>> for _ in range(40):
...     candidates, state = ask(state)  # (8, 100, 5)
...     state = tell(state, candidates, candidates.square().sum(-1))  # fitness: (8, 100)
>>> bool((state.mean.abs() < 1e-2).all())
True

``CrossEntropyMethod`` wraps them with checks, NumPy arrays and checkpoints, and has the equations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cem.core.bounds import keep_inside
from cem.core.config import CEMConfig
from cem.core.generation import draw, operator_sample, tell
from cem.core.state import MEAN, STD, Settings, State, doubles, first_state
from cem.core.variance_schedule import extend, resolve_variance_schedule

__all__ = ["Settings", "State", "ask", "init", "tell"]

_AHEAD = 10_000  # generations with an extra variance of their own


def init(
    mean: Any,
    std: Any,
    population_size: int | None = None,
    *,
    maximize: bool,
    config: CEMConfig | None = None,
    bounds: Any = None,
    backend: str = "auto",
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    seed: Any = None,
) -> State:
    """Return the first state of a search.

    The arguments are those of ``CrossEntropyMethod``, with its errors. A schedule of extra variance is called
    for 10,000 generations, or until it fails; the last variance holds from then on.
    """
    state, _ = first_state(
        mean,
        std,
        population_size,
        maximize=maximize,
        config=config,
        bounds=bounds,
        backend=backend,
        device=device,
        dtype=dtype,
        seed=seed,
    )
    table: list[float] = []
    extend(table, resolve_variance_schedule(state.settings.config.variance_schedule), 1, _AHEAD)
    if table:
        state = state._replace(variance_schedule=doubles(table, state.distribution.device))
    return state


def ask(state: State) -> tuple[Tensor, State]:
    """Draw a generation.

    Args:
        state: The state. With backend ``"torch"`` the noise is that of torch's global generator; with the
            operators it is a function of (seed, generation): asking again gives the same.

    Returns:
        The candidates, shape (..., N, d), and the state.
    """
    return draw(state, _randn if state.settings.backend == "torch" else operator_sample), state


def _randn(state: State, rows: Tensor, size: int, bounds: tuple[Tensor, Tensor] | None) -> Tensor:
    mean, std = rows[..., MEAN, :], rows[..., STD, :]
    noise = torch.randn((*mean.shape[:-1], size, mean.shape[-1]), dtype=mean.dtype, device=mean.device)
    x = mean.unsqueeze(-2) + std.unsqueeze(-2) * noise
    return x if bounds is None else keep_inside(x, mean, std, *bounds, "clamp")
