"""The cross-entropy method for any objective: ask for candidates, tell their fitness.

``minimize`` and ``maximize`` run a complete search in one call. ``Trainer`` runs the loop of
ask and tell, with progress, metrics, checkpoints, a time limit and signals. ``Planner`` plans
actions with a model. ``ParameterVector`` and ``GymObjective`` optimise the parameters of
PyTorch modules. ``cem.functional`` has the method as pure functions of a state. Begin with
`optimizer.py`, and then read `functional.py`: one generation in formulas.
"""

from cem_tetris import explain_clash

if clash := explain_clash():
    raise ImportError(clash)

from cem.core.bounds import Bounds
from cem.core.config import CEMConfig
from cem.core.evaluation import Evaluation
from cem.core.snapshot import GenerationRecord
from cem.core.variance_schedule import describe_variance_schedule, parse_variance_schedule
from cem.families import Permutation
from cem.optimizer import CrossEntropyMethod
from cem.plan.costs import rollout_cost
from cem.plan.planner import Planner
from cem.policy.gym_objective import GymObjective
from cem.policy.parameter_vector import ParameterVector
from cem.rare.event import RareEvent, rare_event_probability
from cem.run.callbacks import Callback, MetricsWriter, ProgressBar
from cem.run.checkpoint import Checkpointer, CheckpointError
from cem.run.stopping import Interrupted, StopRequest
from cem.run.trainer import Trainer, TrainingResult
from cem.search import Result, maximize, minimize
from cem.space import Bool, Choice, Float, Int
from kernels.version import __version__ as __version__

__all__ = [
    "Bool",
    "Bounds",
    "CEMConfig",
    "Callback",
    "CheckpointError",
    "Checkpointer",
    "Choice",
    "CrossEntropyMethod",
    "Evaluation",
    "Float",
    "GenerationRecord",
    "GymObjective",
    "Int",
    "Interrupted",
    "MetricsWriter",
    "ParameterVector",
    "Permutation",
    "Planner",
    "ProgressBar",
    "RareEvent",
    "Result",
    "StopRequest",
    "Trainer",
    "TrainingResult",
    "describe_variance_schedule",
    "maximize",
    "minimize",
    "parse_variance_schedule",
    "rare_event_probability",
    "rollout_cost",
]
