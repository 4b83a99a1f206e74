"""Tetris for linear controllers: rules, features, rollouts, scores. Only `tetris.training` knows `cem`.

The names below are imported when they are first used: an import of torch takes seconds, and the help of a
command needs none.
"""

import importlib
from typing import TYPE_CHECKING, Any

import kernels

if "Extension" not in getattr(kernels, "__all__", ()):
    raise ImportError(
        f"expected this project's package kernels, got {kernels.__file__} (Hugging Face has a distribution "
        "of that name): run python -m pip uninstall kernels, and install cem-tetris again"
    )

from kernels.version import __version__ as __version__

if TYPE_CHECKING:
    from tetris.controller import LinearController, published, resolve
    from tetris.feature_sets import feature_names
    from tetris.own_features import feature, feature_header
    from tetris.played_game import PlayedGame, play_game
    from tetris.rollouts import Rollout, RolloutResult, rollout
    from tetris.rules import Rules
    from tetris.score import Score
    from tetris.splitting import SplitResult, split_rollout

__all__ = [
    "LinearController",
    "PlayedGame",
    "Rollout",
    "RolloutResult",
    "Rules",
    "Score",
    "SplitResult",
    "feature",
    "feature_header",
    "feature_names",
    "play_game",
    "published",
    "resolve",
    "rollout",
    "split_rollout",
]

_HOMES = {
    "controller": ("LinearController", "published", "resolve"),
    "feature_sets": ("feature_names",),
    "own_features": ("feature", "feature_header"),
    "played_game": ("PlayedGame", "play_game"),
    "rollouts": ("Rollout", "RolloutResult", "rollout"),
    "rules": ("Rules",),
    "score": ("Score",),
    "splitting": ("SplitResult", "split_rollout"),
}


def __getattr__(name: str) -> Any:
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(importlib.import_module(f"tetris.{home}"), name)
    return globals()[name]
