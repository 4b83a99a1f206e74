"""Training: presets, curriculum, recipe, objective, the folder of a run. Joins `cem` and the games."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cem import Callback, Interrupted, StopRequest, TrainingResult
    from tetris.training.objective import LinesPerGame
    from tetris.training.run_record import RunRecord, load_run
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

_HOMES = {
    "LinesPerGame": "tetris.training.objective",
    "RunRecord": "tetris.training.run_record",
    "load_run": "tetris.training.run_record",
    "train": "tetris.training.training",
}


def __getattr__(name: str) -> Any:
    # Imported when it is first used: the help of a command needs the presets alone, and no torch.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "cem")), name)
