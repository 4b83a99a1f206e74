"""Gymnasium environments; importing this package registers their ids.

`TetrisEnv` describes them. Begin with `tetris_env.py`.
"""

from typing import Any

from gymnasium.envs.registration import register

from tetris.envs.episodes import replay_of
from tetris.envs.key_press_env import KeyPressTetrisEnv
from tetris.envs.tetris_env import TetrisEnv
from tetris.envs.vector_env import TetrisVectorEnv
from tetris.envs.wrappers import PlacementFeatures

__all__ = [
    "IDS",
    "REFERENCE_IDS",
    "KeyPressTetrisEnv",
    "PlacementFeatures",
    "TetrisEnv",
    "TetrisVectorEnv",
    "replay_of",
]

# The arguments that differ from the defaults of `TetrisEnv`, by the id of the environment.
_VARIANTS: dict[str, dict[str, Any]] = {
    "CemTetris/Tetris-v0": {},
    "CemTetris/Tetris-10x10-v0": {"height": 10},  # The small board of the literature.
    "CemTetris/Tetris-ClearOnOverflow-v0": {"clear_on_overflow": True},
    "CemTetris/Tetris-10x10-ClearOnOverflow-v0": {"height": 10, "clear_on_overflow": True},
    "CemTetris/Tetris-Bag-v0": {"pieces": "bag"},
    "CemTetris/Tetris-Preview-v0": {"pieces_known": 2},
    "CemTetris/Tetris-Points-v0": {"reward": "points"},
}
_REFERENCE_VARIANTS: dict[str, dict[str, Any]] = {
    "CemTetris/Tetris-Hold-v0": {"pieces_known": 2, "hold": True},
    "CemTetris/Tetris-Garbage-v0": {"garbage_every": 10},
    "CemTetris/Tetris-KeyPress-v0": {},
}

IDS = tuple(_VARIANTS)
"""The ids of the environments that also exist as a `TetrisVectorEnv`."""

REFERENCE_IDS = tuple(_REFERENCE_VARIANTS)
"""The ids of the other environments: `gymnasium.make_vec` steps their games one by one."""

for _name, _arguments in (_VARIANTS | _REFERENCE_VARIANTS).items():
    _class = "KeyPressTetrisEnv" if "KeyPress" in _name else "TetrisEnv"
    register(
        _name,
        f"tetris.envs:{_class}",
        vector_entry_point="tetris.envs:TetrisVectorEnv" if _name in IDS else None,
        kwargs=_arguments,
    )
