"""Training: presets, curriculum, recipe, objective, the folder of a run. Joins `cem` and the games."""

from cem import Interrupted, StopRequest, TrainingResult

__all__ = ["Interrupted", "StopRequest", "TrainingResult"]
