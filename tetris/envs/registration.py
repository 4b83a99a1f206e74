"""The ids under which Gymnasium knows the environments, each with what it differs in from `TetrisEnv`."""

from __future__ import annotations

from typing import Any

from gymnasium.envs.registration import register

VARIANTS: dict[str, dict[str, Any]] = {
    "CemTetris/Tetris-v0": {},
    "CemTetris/Tetris-10x10-v0": {"height": 10},  # the small board of the literature
    "CemTetris/Tetris-ClearOnOverflow-v0": {"clear_on_overflow": True},
    "CemTetris/Tetris-10x10-ClearOnOverflow-v0": {"height": 10, "clear_on_overflow": True},
    "CemTetris/Tetris-Bag-v0": {"pieces": "bag"},
    "CemTetris/Tetris-Preview-v0": {"pieces_known": 2},
    "CemTetris/Tetris-Points-v0": {"reward": "points"},
}
"""The environments of the engines by their ids: the arguments that differ from the defaults."""

REFERENCE_VARIANTS: dict[str, dict[str, Any]] = {
    "CemTetris/Tetris-Hold-v0": {"pieces_known": 2, "hold": True},
    "CemTetris/Tetris-Garbage-v0": {"garbage_every": 10},
    "CemTetris/Tetris-KeyPress-v0": {},
}
"""The same for those that only the reference implementation plays."""

IDS = tuple(VARIANTS)
"""The ids of the environments that have a vector environment, too, as `gymnasium.make` takes them."""

REFERENCE_IDS = tuple(REFERENCE_VARIANTS)
"""The ids of the others: `gymnasium.make_vec` steps them one after another."""


def register_environments() -> None:
    """Make the ids known to Gymnasium."""
    single, keys = "tetris.envs.tetris_env:TetrisEnv", "tetris.envs.key_press_env:KeyPressTetrisEnv"
    vector = "tetris.envs.vector_env:TetrisVectorEnv"
    for name, arguments in VARIANTS.items():
        register(name, single, vector_entry_point=vector, kwargs=dict(arguments))
    for name, arguments in REFERENCE_VARIANTS.items():
        register(name, keys if "KeyPress" in name else single, kwargs=dict(arguments))
