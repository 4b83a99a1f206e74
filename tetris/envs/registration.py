"""The ids under which Gymnasium knows the environments; `TetrisEnv` lists them."""

from __future__ import annotations

from typing import Any

from gymnasium.envs.registration import register, registry

NAMESPACE = "CemTetris"

_SMALL: dict[str, Any] = {"height": 10}
_CLEARING: dict[str, Any] = {"clear_on_overflow": True}
VARIANTS: dict[str, dict[str, Any]] = {
    "Tetris": {},
    "Tetris-10x10": _SMALL,
    "Tetris-ClearOnOverflow": _CLEARING,
    "Tetris-10x10-ClearOnOverflow": {**_SMALL, **_CLEARING},
    "Tetris-Bag": {"pieces": "bag"},
}
"""What each variant differs in from the arguments' defaults, by the name in its id."""

IDS = tuple(f"{NAMESPACE}/{name}-v0" for name in VARIANTS)
"""The ids of the environments, as `gymnasium.make` takes them."""


def register_environments() -> None:
    """Make the ids known to Gymnasium, those that are not yet."""
    for identifier, arguments in zip(IDS, VARIANTS.values(), strict=True):
        if identifier not in registry:
            register(
                identifier,
                entry_point="tetris.envs.tetris_env:TetrisEnv",
                vector_entry_point="tetris.envs.vector_env:TetrisVectorEnv",
                kwargs=dict(arguments),
            )
