"""Control simulators by planning in them, with `cem.Planner` and with planners of others.

pip install stable-worldmodel==0.1.1 pytorch-icem==0.1.0
python scripts/measure control --json control.json

The model of a planner is the simulator itself, so returns depend on the planner alone. In each
step a planner evaluates the same number of plans of 30 actions, in 3 iterations of 40 or in one
of 120. Each planner has the default settings of its package, with a tenth of the plans as
elites where the default depends on the number of plans. It starts from its last plan. Actions
are scaled to [-1, 1]. A figure is the mean return of an episode over the seeds of its start.
"""

import argparse
import contextlib
import importlib.metadata
import io
import multiprocessing
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import plan_control
import torch
from torch import Tensor

from cem import Planner
from kernels.support.system import usable_cores
from measure.provenance import Measured

STEPS = {"half_cheetah": 100, "swimmer": 100, "pendulum": 200, "reacher": 50}
"""The number of steps of an episode, by task."""
SEEDS = 10
HORIZON = 30
SAMPLES = 40
ITERATIONS = 3
PACKAGES = ("stable-worldmodel", "pytorch-icem")

_ELITES = SAMPLES // 10


class ScaledTask:
    """A task whose actions are scaled to [-1, 1].

    Attributes:
        task: The task.
        action_dim: A, the number of numbers per action.
        state: The current state of the environment.
    """

    def __init__(self, name: str, seed: int) -> None:
        """Begin an episode from the start of a seed."""
        options = {} if name == "pendulum" else {"threads": 1}
        self.task = plan_control.TASKS[name](seed, **options)
        self.action_dim: int = self.task.planner["action_dim"]
        self._high: float = self.task.planner["bounds"][1]
        self.state = torch.as_tensor(self.task.state())

    def cost(self, plans: Tensor) -> Tensor:
        """Return the costs of plans (N, HORIZON, A) from the current state, shape (N,)."""
        scaled = plans.clamp(-1.0, 1.0) * self._high
        return torch.as_tensor(self.task.cost(self.state, scaled))

    def step(self, action: Tensor) -> float:
        """Execute an action, shape (A,), and return its reward."""
        scaled = action.clamp(-1.0, 1.0) * self._high
        _, reward, *_ = self.task.env.step(scaled.double().numpy())
        self.state = torch.as_tensor(self.task.state())
        return float(reward)


Controller = Callable[[], Tensor]
"""Returns the next action of a task, shape (A,)."""


def make_planner(task: ScaledTask, seed: int, **options: Any) -> Controller:
    """Return `cem.Planner` as a controller. ``options`` are more of its arguments."""
    planner = Planner(
        lambda state, plans: task.cost(plans),
        horizon=HORIZON,
        action_dim=task.action_dim,
        bounds=(-1.0, 1.0),
        seed=seed,
        **{"num_samples": SAMPLES, "iterations": ITERATIONS, **options},
    )
    # The cost reads the state from the task, so the planner gets any number as a state.
    return partial(planner.plan, 0.0)


class WorldModelSolver:
    """A solver of stable-worldmodel as a controller."""

    def __init__(self, task: ScaledTask, seed: int, solver: str, **options: Any) -> None:
        """Make a solver by the name of its class. ``options`` are more of its arguments."""
        from stable_worldmodel import solver as solvers

        self._task = task
        sizes = {"num_samples": SAMPLES, "n_steps": ITERATIONS, "topk": _ELITES}
        self._solver = getattr(solvers, solver)(self, seed=seed, **{**sizes, **options})
        space = gymnasium.spaces.Box(-1.0, 1.0, (1, task.action_dim))
        config = SimpleNamespace(horizon=HORIZON, action_block=1)
        self._solver.configure(action_space=space, n_envs=1, config=config)
        self._rest: Tensor | None = None

    def get_cost(self, info: dict[str, Tensor], plans: Tensor) -> Tensor:
        """Return the costs of plans (1, N, HORIZON, A), shape (1, N), as the solver asks."""
        return self._task.cost(plans[0]).unsqueeze(0)

    def __call__(self) -> Tensor:
        """Return the next action, shape (A,)."""
        with contextlib.redirect_stdout(io.StringIO()):
            result = self._solver.solve({"state": torch.zeros(1, 1)}, init_action=self._rest)
        plan: Tensor = result["actions"]
        self._rest = plan[:, 1:]
        return plan[0, 0]


def make_pytorch_icem(task: ScaledTask, seed: int) -> Controller:
    """Return the planner of pytorch-icem, which only takes actions of one number."""
    import pytorch_icem

    # Its colored noise comes from NumPy's global generator.
    np.random.seed(seed)
    torch.manual_seed(seed)
    planner = pytorch_icem.iCEM(
        dynamics=lambda state, action: state,
        trajectory_cost=lambda states, plans: task.cost(plans),
        nx=1,
        nu=task.action_dim,
        num_samples=SAMPLES,
        horizon=HORIZON,
        warmup_iters=ITERATIONS,
        online_iters=ITERATIONS,
    )
    return partial(planner.command, torch.zeros(1))


PLANNERS: dict[str, Callable[[ScaledTask, int], Controller]] = {
    "ours": make_planner,
    "ours_icem": partial(make_planner, method="icem"),
    "ours_mppi": partial(
        make_planner, method="mppi", num_samples=SAMPLES * ITERATIONS, iterations=1
    ),
    "cem": partial(WorldModelSolver, solver="CEMSolver"),
    "icem": partial(WorldModelSolver, solver="ICEMSolver"),
    "mppi": partial(WorldModelSolver, solver="MPPISolver"),
    "pytorch_icem": make_pytorch_icem,
}


def run_episode(task_name: str, planner: str, seed: int) -> float:
    """Control a task by a planner, and return the sum of the rewards."""
    torch.set_num_threads(1)
    task = ScaledTask(task_name, seed)
    controller = PLANNERS[planner](task, seed)
    return sum(task.step(controller()) for _ in range(STEPS[task_name]))


def list_planners(task_name: str) -> list[str]:
    """Return the names of the planners that can control a task, and that are installed."""
    names = [name for name in PLANNERS if name.startswith("ours")]
    if find_spec("stable_worldmodel") is not None:
        names += ["cem", "icem", "mppi"]
    if find_spec("pytorch_icem") is not None and task_name == "pendulum":
        names.append("pytorch_icem")
    return names


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the mean returns of all planners in all tasks.

    An example of a figure's name is "control.swimmer.ours.mean_return".
    """
    pairs = [(task, planner) for task in STEPS for planner in list_planners(task)]
    seeds = range(arguments.seeds)
    episodes = [(*pair, seed) for pair in pairs for seed in seeds]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(usable_cores(), context) as pool:
        all_returns = list(pool.map(run_episode, *zip(*episodes, strict=True)))
    figures = {}
    returns = {}
    for index, (task, planner) in enumerate(pairs):
        values = all_returns[index * len(seeds) : (index + 1) * len(seeds)]
        figures[f"control.{task}.{planner}.mean_return"] = statistics.fmean(values)
        returns[f"{task}.{planner}"] = values
    packages = [name for name in PACKAGES if find_spec(name.replace("-", "_"))]
    versions = {name: importlib.metadata.version(name) for name in packages}
    return Measured(figures, {"returns": returns, "versions": versions})
