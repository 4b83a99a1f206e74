"""Plan with models that docs/world_model.py learns, and with the true equations.

python scripts/measure learned_control --json learned_control.json

The program plays random episodes and learns a model from them. It plans the episodes of a round
with the model, and learns from all episodes before the next round. The planner, the cost and
the number of episodes are the same with the true equations. A figure is the mean return.
"""

import argparse
import importlib
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import torch
from torch import Tensor

from measure import ROOT
from measure.provenance import Measured

LABELS = ("random", "round_1", "round_2", "true")
"""The names of what is played, in the order of time."""

_SEED = 1
_ACROBOT_STEP = 0.2
"""The duration of a step of Acrobot-v1 in seconds."""


def step_pendulum(observation: Tensor, torque: Tensor) -> Tensor:
    """Return the next observations of Pendulum-v1."""
    cosine, sine, speed = observation.unbind(-1)
    speed = (speed + 0.05 * (15.0 * sine + 3.0 * torque[..., 0])).clamp(-8.0, 8.0)
    angle = torch.atan2(sine, cosine) + 0.05 * speed
    return torch.stack([angle.cos(), angle.sin(), speed], dim=-1)


def step_acrobot(observation: Tensor, action: Tensor) -> Tensor:
    """Return the next observations of Acrobot-v1, with a step of the Runge-Kutta method."""
    cosine_1, sine_1, cosine_2, sine_2, speed_1, speed_2 = observation.unbind(-1)
    angle_1 = torch.atan2(sine_1, cosine_1)
    angle_2 = torch.atan2(sine_2, cosine_2)
    state = torch.stack([angle_1, angle_2, speed_1, speed_2])
    torque = action[..., 0] - 1.0  # The actions 0, 1 and 2 are the torques -1, 0 and 1.
    slope_1 = _differentiate_acrobot(state, torque)
    slope_2 = _differentiate_acrobot(state + _ACROBOT_STEP / 2 * slope_1, torque)
    slope_3 = _differentiate_acrobot(state + _ACROBOT_STEP / 2 * slope_2, torque)
    slope_4 = _differentiate_acrobot(state + _ACROBOT_STEP * slope_3, torque)
    slope = (slope_1 + 2.0 * slope_2 + 2.0 * slope_3 + slope_4) / 6.0
    angle_1, angle_2, speed_1, speed_2 = state + _ACROBOT_STEP * slope
    # The environment limits both speeds.
    speed_1 = speed_1.clamp(-4.0 * torch.pi, 4.0 * torch.pi)
    speed_2 = speed_2.clamp(-9.0 * torch.pi, 9.0 * torch.pi)
    numbers = [angle_1.cos(), angle_1.sin(), angle_2.cos(), angle_2.sin(), speed_1, speed_2]
    return torch.stack(numbers, dim=-1)


def _differentiate_acrobot(state: Tensor, torque: Tensor) -> Tensor:
    """Return the derivatives of states with respect to time, shape (4, ...).

    Args:
        state: The angles of both links and their angular velocities, shape (4, ...). The second
            link is relative to the first one.
        torque: The torques at the joint between the links, shape (...).
    """
    angle_1, angle_2, speed_1, speed_2 = state
    # The links have length 1, mass 1 and moment of inertia 1, and their centres of mass are in
    # their middles. Gymnasium takes the equations from Sutton and Barto's book. The names here
    # are those of the book.
    d_1 = 3.5 + angle_2.cos()
    d_2 = 1.25 + 0.5 * angle_2.cos()
    phi_2 = 4.9 * (angle_1 + angle_2).sin()
    phi_1 = 14.7 * angle_1.sin() + phi_2
    phi_1 = phi_1 - 0.5 * speed_2 * (speed_2 + 2.0 * speed_1) * angle_2.sin()
    force = torque + d_2 / d_1 * phi_1 - 0.5 * speed_1.square() * angle_2.sin() - phi_2
    acceleration_2 = force / (1.25 - d_2.square() / d_1)
    acceleration_1 = -(d_2 * acceleration_2 + phi_1) / d_1
    return torch.stack([speed_1, speed_2, acceleration_1, acceleration_2])


DYNAMICS: dict[str, Callable[[Tensor, Tensor], Tensor] | None] = {
    "Pendulum-v1": step_pendulum,
    "Acrobot-v1": step_acrobot,
    "CartPole-v1": None,
}
"""The true equations of environments, as functions of observations and actions.

CartPole-v1 needs none for a comparison: no return is greater than 500.
"""


def _play_with_true_equations(
    program: Any, name: str, dynamics: Callable[[Tensor, Tensor], Tensor]
) -> Any:
    """Plan episodes with the true equations of an environment, and return the episodes.

    They have the same starts as the episodes of the last round.

    Args:
        program: The module docs/world_model.py.
        name: The name of the environment.
        dynamics: The true equations.
    """
    envs = gymnasium.make_vec(name, program.EPISODES)
    planner = program.make_planner(envs, dynamics, program.TASKS[name].cost, _SEED)
    start_seed = _SEED + program.ROUNDS * program.EPISODES
    return program.play(envs, planner.plan, start_seed)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Play environments by planning, and return the mean return of each stage of the learning.

    The stages are random play, two rounds of planning with a learned model, and planning with
    the true equations. Examples of a figure's name are "learned_control.Pendulum-v1.random" and
    "learned_control.Pendulum-v1.round_1". In the data, "returns" has the returns of all
    episodes, and "steps" has the number of their steps.
    """
    # The program that learns and plans is a page's example, docs/world_model.py.
    sys.path.append(str(ROOT / "docs"))
    program: Any = importlib.import_module("world_model")
    figures = {}
    returns = {}
    steps = {}
    # `DYNAMICS` maps an environment to its true equations, or to None.
    for name, dynamics in DYNAMICS.items():
        # The episodes of each stage: of random play, and of both rounds.
        _, stages = program.run(name, _SEED)
        if dynamics is not None:
            stages.append(_play_with_true_equations(program, name, dynamics))
        # Without true equations, the last label has no episodes.
        for label, episodes in zip(LABELS, stages, strict=False):
            figure = f"learned_control.{name}.{label}"
            figures[figure] = episodes.returns.mean().item()
            returns[figure] = episodes.returns.tolist()
            steps[figure] = episodes.is_running.sum().item()
    return Measured(figures, {"returns": returns, "steps": steps})
