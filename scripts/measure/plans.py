"""Plan in learned latent models with `cem.Planner`, and with solvers of stable-worldmodel.

pip install stable-worldmodel==0.1.1

python scripts/measure plans --json plans.json

Six models are trained here, each in its own process. The defaults of `cem.Planner` were chosen
on the first three; the other three test them. A plan has 5 actions of 5 or 10 numbers. The
score of a plan is its cost divided by the cost of doing nothing. Before that, the plan is
clamped into the bounds. A figure is the median score of 50 problems. "ours_half" has half the
samples.

Each solver of stable-worldmodel runs with four settings, and the best score counts. The number
of elites (`topk`) is the default of 30 or a tenth of the samples, and the model either clamps
actions or does not. Predictive sampling has a single iteration, which gets the samples of all
iterations. If the package is not installed, only our planner is measured.
"""

import argparse
import contextlib
import importlib.metadata
import io
import itertools
import math
import multiprocessing
import statistics
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import torch
from torch import Tensor

from cem import Planner
from kernels.support.system import usable_cores
from measure.latent_models import (
    ACTION_BOUND,
    BLOCK,
    HORIZON,
    SYSTEMS,
    LatentModel,
    make_problems,
    train,
)
from measure.provenance import Measured

CELLS = ((300, 30), (300, 10), (100, 10), (100, 5), (64, 3))
"""The budgets of the planners: (samples, iterations)."""
SHOWN = tuple(SYSTEMS)[3:]
"""The systems on which the defaults of `cem.Planner` were not chosen."""
PEERS = ("cem", "icem", "mppi", "predictive_sampling")
PACKAGE = "stable-worldmodel"

_MODULE = "stable_worldmodel"
_SEED = 1
_PROBLEMS = 50
_BOUNDS = (-ACTION_BOUND, ACTION_BOUND)


class Problems(NamedTuple):
    """Planning problems in the model of a system.

    Attributes:
        model: The model.
        latents: The latent states of the starts and the goals, shape (P, 2, L).
        action_dim: The size of an action of the system. An action of a plan is `BLOCK` times as
            large.
    """

    model: LatentModel
    latents: Tensor
    action_dim: int

    def cost(self, latents: Tensor, plans: Tensor) -> Tensor:
        """Clamp plans (P, N, HORIZON, A) into the bounds, and return their costs (P, N)."""
        return self.free_cost(latents, plans.clamp(*_BOUNDS))

    def free_cost(self, latents: Tensor, plans: Tensor) -> Tensor:
        """Return the costs of plans (P, N, HORIZON, A), shape (P, N), without clamping them.

        ``latents`` has the latent states of the starts and the goals, shape (P, 2, L).
        """
        start, goal = latents.unsqueeze(1).unbind(-2)  # Each of shape (P, 1, L).
        starts = start.expand(*plans.shape[:2], -1)
        imagined = self.model.imagine(starts, plans)
        return (imagined[..., -1, :] - goal).square().sum(-1)

    def score(self, plans: Tensor) -> float:
        """Return the median over problems of the cost of a plan divided by that of no action.

        ``plans`` has the shape (P, HORIZON, A).
        """
        # Each problem gets two plans: its own, and one of zeros, which does nothing.
        pairs = torch.stack([plans, torch.zeros_like(plans)], dim=1)
        costs = self.cost(self.latents, pairs)
        ratios: list[float] = (costs[:, 0] / costs[:, 1]).tolist()
        return statistics.median(ratios)


class CostModel(NamedTuple):
    """A model with the interface that the solvers of stable-worldmodel need.

    Attributes:
        problems: The problems.
        clamps: Whether the model clamps plans into the bounds.
    """

    problems: Problems
    clamps: bool

    def get_cost(self, info: dict[str, Tensor], plans: Tensor) -> Tensor:
        """Return the costs of plans (P, N, HORIZON, A), shape (P, N)."""
        # The solver repeats each problem for each of its plans, so the first copy is enough.
        latents = info["latents"][:, 0]
        cost = self.problems.cost if self.clamps else self.problems.free_cost
        return cost(latents, plans)


def solve_by_planner(problems: Problems, samples: int, iterations: int) -> Tensor:
    """Return the best plans that `cem.Planner` finds with its defaults, one per problem.

    The result has the shape (P, HORIZON, A): P problems, and A numbers in an action of a plan.
    """
    planner = Planner(
        problems.cost,
        horizon=HORIZON,
        action_dim=problems.action_dim,
        action_block=BLOCK,
        bounds=_BOUNDS,
        num_envs=_PROBLEMS,  # Each problem is an environment of its own.
        num_samples=samples,
        iterations=iterations,
        seed=_SEED,
    )
    planner.plan(problems.latents)
    return planner.best_plan


def solve_by_peer(peer: Any, problems: Problems, clamps: bool, **options: Any) -> Tensor:
    """Return the plans of a solver of stable-worldmodel, shape (P, HORIZON, A).

    Args:
        peer: The class of the solver.
        problems: The problems.
        clamps: Whether the model clamps actions into the bounds.
        options: Other arguments of the class, such as "num_samples".
    """
    model = CostModel(problems, clamps)
    solver = peer(model, batch_size=_PROBLEMS, seed=_SEED, **options)
    low, high = _BOUNDS
    space = gymnasium.spaces.Box(low, high, (_PROBLEMS, problems.action_dim))
    config = SimpleNamespace(horizon=HORIZON, action_block=BLOCK)
    solver.configure(action_space=space, n_envs=_PROBLEMS, config=config)
    with contextlib.redirect_stdout(io.StringIO()):  # Discard what the solver prints.
        plans: Tensor = solver.solve({"latents": problems.latents})["actions"]
    return plans


def measure_peers(problems: Problems, samples: int, iterations: int) -> dict[str, float]:
    """Return the scores of stable-worldmodel's solvers, each with its best settings.

    A score is the cost of a plan divided by the cost of doing nothing: the lower, the better.
    Predictive sampling has a single iteration, so it gets the samples of all iterations.

    Args:
        problems: The planning problems.
        samples: The number of plans in an iteration.
        iterations: The number of iterations.
    """
    from stable_worldmodel import solver as peers

    # `topk` is the number of elites: the default, 30, or a tenth of the samples.
    with_elites = [
        {"num_samples": samples, "n_steps": iterations, "topk": topk}
        for topk in (30, max(2, samples // 10))
    ]
    one_iteration = [{"num_samples": samples * iterations}]
    # The class of each solver, and the options to try.
    solvers = {
        "cem": (peers.CEMSolver, with_elites),
        "icem": (peers.ICEMSolver, with_elites),
        "mppi": (peers.MPPISolver, with_elites),
        "predictive_sampling": (peers.PredictiveSamplingSolver, one_iteration),
    }
    scores: dict[str, float] = {}
    for name, (solver, options_to_try) in solvers.items():
        # `clamps` is whether the model clamps actions into their bounds. Try both.
        for options, clamps in itertools.product(options_to_try, (True, False)):
            plans = solve_by_peer(solver, problems, clamps, **options)
            scores[name] = min(scores.get(name, math.inf), problems.score(plans))
    return scores


def measure_system(name: str) -> dict[str, float]:
    """Train a model of a system, and return the scores of all planners that plan with it.

    An example of a figure's name is "plans.push.300x30.ours": the system, samples x iterations,
    and the planner.
    """
    torch.set_num_threads(1)  # Each system has a process of its own.
    system = SYSTEMS[name]
    model = train(system, _SEED)
    latents = make_problems(model, system, _SEED + 1, _PROBLEMS)
    problems = Problems(model, latents, system.action_dim)
    figures: dict[str, float] = {}
    for samples, iterations in CELLS:  # The budgets of the planners.
        scores = {
            "ours": problems.score(solve_by_planner(problems, samples, iterations)),
            # Our planner with half the samples.
            "ours_half": problems.score(solve_by_planner(problems, samples // 2, iterations)),
        }
        if find_spec(_MODULE) is not None:  # The other planners are installed.
            scores |= measure_peers(problems, samples, iterations)
        cell = f"plans.{name}.{samples}x{iterations}"
        figures |= {f"{cell}.{solver}": score for solver, score in scores.items()}
    return figures


def count_wins(figures: dict[str, float], ours: str) -> int:
    """Return in how many cells our planner has a better score than all peers.

    A cell is a budget of samples and iterations in one of the systems `SHOWN`.

    Args:
        figures: The scores by name.
        ours: Our planner: "ours", or "ours_half" with half the samples.
    """
    wins = 0
    for name, (samples, iterations) in itertools.product(SHOWN, CELLS):
        cell = f"plans.{name}.{samples}x{iterations}"
        best = min(figures[f"{cell}.{peer}"] for peer in PEERS)
        wins += figures[f"{cell}.{ours}"] < best
    return wins


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the scores of all planners in all systems, and how often ours beats all others.

    A cell is a system with a budget of samples and iterations. The last two figures are the
    numbers of cells in which our planner wins: with all samples ("plans.cells_ahead"), and with
    half of them ("plans.cells_ahead_by_half"). They are missing if the package with the other
    planners is not installed.
    """
    figures: dict[str, float] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(usable_cores(), context) as pool:
        for system_figures in pool.map(measure_system, SYSTEMS):
            figures |= system_figures
    data: dict[str, Any] = {"problems": _PROBLEMS}
    if find_spec(_MODULE) is not None:
        figures["plans.cells_ahead"] = count_wins(figures, "ours")
        figures["plans.cells_ahead_by_half"] = count_wins(figures, "ours_half")
        data["versions"] = {PACKAGE: importlib.metadata.version(PACKAGE)}
    return Measured(figures, data)
