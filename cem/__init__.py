"""The cross-entropy method for any objective: ask for candidates, tell their fitness.

>>> import torch
>>> from cem import CrossEntropyMethod
>>> optimizer = CrossEntropyMethod(mean=torch.zeros(3), std=1.0, population_size=50, maximize=False)
>>> for _ in range(20):
...     candidates = optimizer.ask()
...     optimizer.tell((candidates - 1.0).square().sum(dim=1))
>>> optimizer.generation
20

``minimize`` and ``maximize`` are a whole search in one call, ``Trainer`` is the loop with progress, metrics,
checkpoints, time limit and signals, ``Planner`` plans with a model, ``cem.functional`` is the method as pure
functions of a state. Begin with `optimizer.py`; below it `functional.py` is one generation in formulas.
"""

import kernels

if not hasattr(kernels, "Extension"):
    raise ImportError(
        f"expected this project's package kernels, got {kernels.__file__} (Hugging Face has a distribution "
        "of that name): run python -m pip uninstall kernels, and install cem-tetris again"
    )

from cem.callbacks import Callback, GenerationRecord, MetricsWriter, ProgressBar
from cem.checkpoint import Checkpointer, CheckpointError
from cem.evaluation import Evaluation
from cem.noise import describe_noise, parse_noise
from cem.optimizer import CrossEntropyMethod
from cem.plan_search import rollout_cost
from cem.planner import Planner
from cem.search import Result, maximize, minimize
from cem.stopping import Interrupted, StopRequest
from cem.trainer import Trainer, TrainingResult
from kernels.version import __version__ as __version__

__all__ = [
    "Callback",
    "CheckpointError",
    "Checkpointer",
    "CrossEntropyMethod",
    "Evaluation",
    "GenerationRecord",
    "Interrupted",
    "MetricsWriter",
    "Planner",
    "ProgressBar",
    "Result",
    "StopRequest",
    "Trainer",
    "TrainingResult",
    "describe_noise",
    "maximize",
    "minimize",
    "parse_noise",
    "rollout_cost",
]
