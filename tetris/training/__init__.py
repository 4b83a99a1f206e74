"""Training: presets, curriculum, recipe, objective, the folder of a run. Joins `cem` and the games."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cem import Interrupted, StopRequest, TrainingResult
    from tetris.training.training import train

__all__ = ["Interrupted", "StopRequest", "TrainingResult", "train"]


def __getattr__(name: str) -> Any:
    # Imported when it is first used: the help of a command needs the presets alone, and no torch.
    if name == "train":
        from tetris.training.training import train

        return train
    if name in __all__:
        import cem

        return getattr(cem, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
