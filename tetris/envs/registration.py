"""The ids under which Gymnasium knows the environments; `TetrisEnv` lists them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gymnasium.envs.registration import register, registry

NAMESPACE = "CemTetris"
_KEY_PRESS = "tetris.envs.key_press_env:KeyPressTetrisEnv"

_SMALL: dict[str, Any] = {"height": 10}
_CLEARING: dict[str, Any] = {"clear_on_overflow": True}
VARIANTS: dict[str, dict[str, Any]] = {
    "Tetris": {},
    "Tetris-10x10": _SMALL,
    "Tetris-ClearOnOverflow": _CLEARING,
    "Tetris-10x10-ClearOnOverflow": {**_SMALL, **_CLEARING},
    "Tetris-Bag": {"pieces": "bag"},
    "Tetris-Preview": {"pieces_known": 2},
    "Tetris-Points": {"reward": "points"},
}
"""What each environment of the engines differs in from the arguments' defaults, by the name in its id."""

REFERENCE_VARIANTS: dict[str, dict[str, Any]] = {
    "Tetris-Hold": {"pieces_known": 2, "hold": True},
    "Tetris-Garbage": {"garbage_every": 10},
    "Tetris-KeyPress": {},
}
"""The same for those that only the reference implementation plays."""


def _ids(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{NAMESPACE}/{name}-v0" for name in names)


IDS = _ids(VARIANTS)
"""The ids of the environments that have a vector environment, too, as `gymnasium.make` takes them."""

REFERENCE_IDS = _ids(REFERENCE_VARIANTS)
"""The ids of the others: `gymnasium.make_vec` steps them one after another."""


def register_environments() -> None:
    """Make the ids known to Gymnasium, those that are not yet."""
    environments = {**VARIANTS, **REFERENCE_VARIANTS}
    for identifier, (name, arguments) in zip(_ids(environments), environments.items(), strict=True):
        if identifier not in registry:
            vector = "tetris.envs.vector_env:TetrisVectorEnv" if name in VARIANTS else None
            register(
                identifier,
                entry_point=_KEY_PRESS if name == "Tetris-KeyPress" else "tetris.envs.tetris_env:TetrisEnv",
                vector_entry_point=vector,
                kwargs=dict(arguments),
            )
