"""What the tests of searches share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from cem import CEMConfig, CrossEntropyMethod

ON_A_GPU = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

KINDS: dict[str, dict[str, Any]] = {
    "default": {"config": CEMConfig()},
    "classic": {
        "config": CEMConfig.classic(
            "linear:0.5,20",
            smoothing=0.8,
            std_smoothing=0.5,
            mean_averaging=0.3,
        )
    },
    "paths": {"config": CEMConfig.cma("diagonal")},
    "integers": {"config": CEMConfig(integers=[0]), "bounds": (-6.0, 5.0)},
    "transform": {"config": CEMConfig(bound_handling="transform"), "bounds": (-6.0, 5.0)},
    "cma": {"config": CEMConfig.cma()},
    "full paths": {"config": CEMConfig.cma(bound_handling="resample"), "bounds": (-6.0, 5.0)},
}
"""Searches that run through different code."""


def bits(state: Any) -> dict[str, Any]:
    """Return the state of an optimizer, or one given as a dict, in a form that compares bit for
    bit."""
    if isinstance(state, CrossEntropyMethod):
        state = state.state_dict()
    return {
        name: value.numpy().tobytes() if torch.is_tensor(value) else value
        for name, value in state.items()
    }


@contextlib.contextmanager
def nobody_waits() -> Iterator[None]:
    """Let it be an error that the host waits for the GPU."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def step(
    search: CrossEntropyMethod, objective: Callable[[Any], Any], generations: int = 1
) -> None:
    """Ask and tell so many generations."""
    for _ in range(generations):
        candidates = search.ask()
        search.tell(candidates, objective(candidates))


def sphere(candidates: Tensor, generation: Any = 0) -> Tensor:
    """Return |x|^2, as the fitness of an optimizer or as the objective of a trainer."""
    return candidates.square().sum(-1)
