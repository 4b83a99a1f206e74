"""Training joins `cem` and the games: presets, curriculum, recipe, objective, folder of a run.

The names below are imported when they are first used: other commands need the settings alone.
Begin with `training.py`.
"""

from typing import TYPE_CHECKING

from kernels.support.lazy import lazy_names

if TYPE_CHECKING:
    from cem import Callback, Interrupted, StopRequest, TrainingResult
    from tetris.training.objective import LinesPerGame
    from tetris.training.run_folder import RunRecord, load_run
    from tetris.training.training import train

__all__ = [
    "Callback",
    "Interrupted",
    "LinesPerGame",
    "RunRecord",
    "StopRequest",
    "TrainingResult",
    "load_run",
    "train",
]

__getattr__ = lazy_names(__name__)
