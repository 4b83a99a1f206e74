"""What the tests of searches share."""

from __future__ import annotations

from typing import Any

import torch

from cem import CrossEntropyMethod

CLASSIC: dict[str, Any] = {
    "weights": "equal",
    "variance_about": "new_mean",
    "std_smoothing": 1.0,
    "relative_std_floor": 0.0,
}
"""Options for the formulas of the literature: means and variances of the elites, all of one weight."""


def bits(state: Any) -> dict[str, Any]:
    """Returns the state of an optimizer, or one given as a dict, in a form that compares bit for bit."""
    if isinstance(state, CrossEntropyMethod):
        state = state.state_dict()
    return {
        name: value.numpy().tobytes() if torch.is_tensor(value) else value for name, value in state.items()
    }
