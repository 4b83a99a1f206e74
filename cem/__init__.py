"""The cross-entropy method for any objective: ask for candidates, tell their fitness.

>>> import torch
>>> from cem import CrossEntropyMethod
>>> optimizer = CrossEntropyMethod(mean=torch.zeros(3), std=1.0, population_size=50, maximize=False)
>>> for _ in range(20):
...     candidates = optimizer.ask()
...     optimizer.tell((candidates - 1.0).square().sum(dim=1))
>>> optimizer.generation
20

``Trainer`` is the loop: progress, metrics, checkpoints, time limit and signals.
"""

import kernels

if not hasattr(kernels, "Extension"):
    raise ImportError(
        f"expected this project's package kernels, got {kernels.__file__} (Hugging Face has a distribution "
        "of that name): run python -m pip uninstall kernels, and install cem-tetris again"
    )

from cem.callbacks import Callback, GenerationRecord, MetricsWriter, ProgressBar, RunPlan
from cem.checkpoint import (
    Checkpointer,
    CheckpointError,
    LoadedCheckpoint,
    RejectedCheckpoint,
    read_checkpoint,
    write_checkpoint,
)
from cem.evaluation import Evaluation, Objective
from cem.noise import (
    ConstantNoise,
    HyperbolicNoise,
    LinearNoise,
    NoiseSchedule,
    NoNoise,
    describe_noise,
    parse_noise,
)
from cem.optimizer import CrossEntropyMethod
from cem.plan_search import rollout_cost
from cem.planner import Planner
from cem.sampling import Sampler, available_backends, register_backend
from cem.snapshot import Snapshot
from cem.stopping import Interrupted, StopRequest
from cem.tensorboard import TensorBoardWriter
from cem.trainer import Trainer, TrainingResult

__all__ = [
    "Callback",
    "CheckpointError",
    "Checkpointer",
    "ConstantNoise",
    "CrossEntropyMethod",
    "Evaluation",
    "GenerationRecord",
    "HyperbolicNoise",
    "Interrupted",
    "LinearNoise",
    "LoadedCheckpoint",
    "MetricsWriter",
    "NoNoise",
    "NoiseSchedule",
    "Objective",
    "Planner",
    "ProgressBar",
    "RejectedCheckpoint",
    "RunPlan",
    "Sampler",
    "Snapshot",
    "StopRequest",
    "TensorBoardWriter",
    "Trainer",
    "TrainingResult",
    "available_backends",
    "describe_noise",
    "parse_noise",
    "read_checkpoint",
    "register_backend",
    "rollout_cost",
    "write_checkpoint",
]
