"""The cross-entropy method as pure functions of a state: ``init``, ``ask``, ``tell``.

    candidates, state = ask(state)               x_i ~ N(mu_t, Sigma_t),  i = 1 .. N
    state = tell(state, candidates, f(candidates))

A state is a NamedTuple of tensors. They may have leading batch dimensions: each of thousands of
problems then has its own distribution, seed and record, and one call moves all of them. The
functions change nothing in place and never wait for the device. They therefore work in
``torch.compile(fullgraph=True)`` and in CUDA graphs.

>>> import torch
>>> from cem.functional import ask, init, tell
>>> state = init(torch.full((8, 5), 3.0), 1.0, 100, maximize=False, seed=1)  # 8 problems
>>> for _ in range(40):
...     candidates, state = ask(state)  # (8, 100, 5)
...     state = tell(state, candidates, candidates.square().sum(-1))  # fitness: (8, 100)
>>> bool((state.mean.abs() < 1e-2).all())
True

``CrossEntropyMethod`` adds checks, NumPy arrays and checkpoints. Its module has the equations.
"""

import torch
from torch import Tensor

from cem.core.generation import draw, operator_sample, tell
from cem.core.start import init
from cem.core.state import MEAN, STD, Settings, State

__all__ = ["Settings", "State", "ask", "init", "tell"]


def ask(state: State) -> tuple[Tensor, State]:
    """Return the candidates of a generation, shape (..., N, d), and the unchanged state.

    With the backend ``"torch"``, torch's global generator draws the noise. With the other
    backends the noise is a function of (seed, generation): asking again returns equal
    candidates.
    """
    is_torch = state.settings.backend == "torch"
    return draw(state, _torch_noise if is_torch else operator_sample), state


def _torch_noise(state: State, rows: Tensor, size: int) -> Tensor:
    """Draw candidates with torch's global generator; a ``cem.core.generation.Sample``."""
    mean = rows[..., MEAN, :]
    std = rows[..., STD, :]
    shape = (*mean.shape[:-1], size, mean.shape[-1])
    noise = torch.randn(shape, dtype=mean.dtype, device=mean.device)
    return mean.unsqueeze(-2) + std.unsqueeze(-2) * noise
