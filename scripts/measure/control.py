"""Control simulators with `cem.Planner` and with the solvers of stable-worldmodel.

pip install stable-worldmodel==0.1.1
python scripts/measure control --json control.json

The model of a planner is the simulator itself, so returns depend on the planner alone. In each
step a planner evaluates 120 plans of 30 actions: 40 in each of 3 iterations, or all at once. It
has the default settings of its package; a tenth of the plans are elites. It starts from its
last plan. A figure is the mean return of the episodes of 16 starts.
"""

import argparse
import contextlib
import importlib.metadata
import io
import itertools
import statistics
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import plan_control
import torch
from torch import Tensor

from cem import Planner
from kernels.support.system import usable_cores
from measure.coco import run_all
from measure.plans import PACKAGE
from measure.provenance import Measured

STEPS = {"half_cheetah": 100, "swimmer": 100, "pendulum": 200, "reacher": 50}
"""The number of steps of an episode, by task."""

_EPISODES = 16
_HORIZON = 30
_SAMPLES = 40
_ITERATIONS = 3


def make_planner(task: plan_control.Task, seed: int, **options: Any) -> Planner:
    """Return `cem.Planner` for a task. ``options`` are more of its arguments."""
    settings = {**task.planner, "num_samples": _SAMPLES, "iterations": _ITERATIONS, **options}
    return Planner(task.cost, _HORIZON, seed=seed, **settings)


class Solver:
    """Plans in a task by a solver of stable-worldmodel."""

    def __init__(self, task: plan_control.Task, seed: int, name: str) -> None:
        """Make a solver for a task.

        Args:
            task: The task.
            seed: The seed of the solver.
            name: The name of the solver's class, such as "CEMSolver".
        """
        from stable_worldmodel import solver as solvers

        self._task = task
        self._bounds = task.planner["bounds"]
        solver_class = getattr(solvers, name)
        # The first argument is the model: the solver calls its method `get_cost`.
        self._solver = solver_class(
            self, num_samples=_SAMPLES, n_steps=_ITERATIONS, topk=_SAMPLES // 10, seed=seed
        )
        low, high = self._bounds
        space = gymnasium.spaces.Box(low, high, (1, task.planner["action_dim"]))
        config = SimpleNamespace(horizon=_HORIZON, action_block=1)
        self._solver.configure(action_space=space, n_envs=1, config=config)
        self._last_plan: Tensor | None = None

    def get_cost(self, info: dict[str, Tensor], plans: Tensor) -> Tensor:
        """Return the costs of plans (1, N, H, A), shape (1, N). The solver calls this."""
        costs = self._task.cost(self._state, plans[0].clamp(*self._bounds))
        return torch.as_tensor(costs).unsqueeze(0)

    def plan(self, state: Any) -> Tensor:
        """Return the next action in a state, shape (A,)."""
        # The solver would round the state to float32. So `get_cost` takes it from here, and the
        # solver gets a number that nobody reads.
        self._state = torch.as_tensor(state)
        info = {"number": torch.zeros(1, 1)}
        # The search starts from the last plan without its first action, which has been done.
        rest = None if self._last_plan is None else self._last_plan[:, 1:]
        with contextlib.redirect_stdout(io.StringIO()):  # Discard what it prints.
            result = self._solver.solve(info, init_action=rest)
        self._last_plan = result["actions"].clamp(*self._bounds)
        return self._last_plan[0, 0]


PLANNERS: dict[str, Callable[..., Any]] = {
    "ours": make_planner,
    "ours_icem": partial(make_planner, method="icem"),
    "ours_mppi": partial(
        make_planner, method="mppi", num_samples=_SAMPLES * _ITERATIONS, iterations=1
    ),
    "cem": partial(Solver, name="CEMSolver"),
    "icem": partial(Solver, name="ICEMSolver"),
    "mppi": partial(Solver, name="MPPISolver"),
}
"""What makes each planner from a task and a seed."""


def run_episode(run: tuple[str, str, int]) -> float:
    """Control a task by a planner, and return the sum of the rewards.

    Args:
        run: The name of the task, the name of the planner, and the seed of both.
    """
    task_name, planner_name, seed = run
    # Runs are processes in parallel, so each of them simulates with a single thread. The task
    # of the pendulum needs no simulator, and does not have this option.
    options = {} if task_name == "pendulum" else {"threads": 1}
    task = plan_control.TASKS[task_name](seed, **options)
    planner = PLANNERS[planner_name](task, seed)
    total = 0.0
    for _ in range(STEPS[task_name]):
        action = planner.plan(task.state())
        _, reward, *_ = task.env.step(np.asarray(action))
        total += float(reward)
    return total


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the mean return of each planner in each task.

    An example of a figure's name is "control.swimmer.ours.return". "returns" in the data has
    the returns of all episodes.
    """
    pairs = [*itertools.product(STEPS, PLANNERS)]
    runs = [(*pair, seed) for pair in pairs for seed in range(_EPISODES)]
    results = run_all(run_episode, runs, usable_cores(), "control")
    figures = {}
    returns = {}
    for index, (task, planner) in enumerate(pairs):
        values = results[index * _EPISODES : (index + 1) * _EPISODES]
        returns[f"{task}.{planner}"] = values
        figures[f"control.{task}.{planner}.return"] = statistics.fmean(values)
    versions = {name: importlib.metadata.version(name) for name in (PACKAGE, "mujoco")}
    return Measured(figures, {"returns": returns, "versions": versions})
