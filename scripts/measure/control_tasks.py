"""Control tasks with a real simulator: Gymnasium's Pendulum-v1 and HalfCheetah-v5, and costs to plan by."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cem import Planner

Controller = Callable[[Any], npt.NDArray[Any]]
"""Maps the state of a task to an action."""

_STEP, _TORQUE, _GRAVITY = 0.05, 3.0, 15.0  # Pendulum-v1: dt; 3 / (m l^2); 3 g / (2 l)
_X = 1  # of a state of MuJoCo: time, then the positions, of which the cheetah's first one is x
_CONTROL_COST = 0.1  # HalfCheetah-v5


class Task(NamedTuple):
    """An environment, and what a planner needs to know of it."""

    env: Any  # of Gymnasium, unwrapped
    state: Callable[[], Any]  # the simulator's state, as the cost takes it
    cost: Callable[[Any, Tensor], Any]
    planner: dict[str, Any]  # arguments of `cem.Planner` that belong to the task


def pendulum_cost(state: Tensor, plans: Tensor) -> Tensor:
    """Return the cost of plans by the equations of Pendulum-v1.

    Args:
        state: Angle and angular velocity, shape ([B,] 2).
        plans: Torques, shape ([B,] N, horizon, 1).

    Returns:
        Shape ([B,] N): minus the sum of rewards.
    """
    angle, speed = state[..., None, 0], state[..., None, 1]
    total = torch.zeros(1, dtype=plans.dtype, device=plans.device)
    for torque in plans[..., 0].unbind(-1):
        error = torch.remainder(angle + torch.pi, 2 * torch.pi) - torch.pi
        total = total + error.square() + 0.1 * speed.square() + 0.001 * torque.square()
        speed = (speed + (_GRAVITY * angle.sin() + _TORQUE * torque) * _STEP).clamp(-8.0, 8.0)
        angle = angle + speed * _STEP
    return total


def pendulum(seed: int, render: bool = False) -> Task:
    """Make Pendulum-v1 at a random start: swing up with a torque that is too weak to do so at once."""
    env: Any = gymnasium.make("Pendulum-v1", render_mode="rgb_array" if render else None).unwrapped
    env.reset(seed=seed)
    return Task(
        env,
        lambda: torch.tensor(env.state, dtype=torch.float32),
        pendulum_cost,
        {"action_dim": 1, "bounds": (-2.0, 2.0), "horizon": 30},
    )


def half_cheetah(seed: int, render: bool = False) -> Task:
    """Make HalfCheetah-v5, planned on MuJoCo itself: the plans are simulated from the state as it is.

    Raises:
        ValueError: If MuJoCo is not installed.
    """
    try:
        import mujoco
        from mujoco import rollout
    except ImportError as error:
        raise ValueError('expected MuJoCo, found none: pip install -e ".[mujoco]"') from error
    mujoco.set_mju_user_warning(logging.getLogger("mujoco").warning)  # by default it writes a file, too
    options: dict[str, Any] = (
        {"render_mode": "rgb_array", "camera_name": "track", "width": 640, "height": 360} if render else {}
    )
    env: Any = gymnasium.make("HalfCheetah-v5", **options).unwrapped
    env.reset(seed=seed)
    model, threads = env.model, len(os.sched_getaffinity(0))
    everything = mujoco.mjtState.mjSTATE_FULLPHYSICS
    size = mujoco.mj_stateSize(model, everything)
    data, pool = [mujoco.MjData(model) for _ in range(threads)], rollout.Rollout(nthread=threads)

    def state() -> npt.NDArray[np.float64]:
        told = np.empty(size)
        mujoco.mj_getState(model, env.data, told, everything)
        return told

    def cost(start: Tensor, plans: Tensor) -> npt.NDArray[np.float64]:
        """Minus the sum of rewards: forward velocities, less the squares of the actions."""
        actions = plans.double().numpy()
        controls = actions.repeat(env.frame_skip, axis=1)
        states, _ = pool.rollout(model, data, np.broadcast_to(start.numpy(), (len(actions), size)), controls)
        forward = (states[:, -1, _X] - float(start[_X])) / env.dt
        costs: npt.NDArray[np.float64] = _CONTROL_COST * np.square(actions).sum((1, 2)) - forward
        return costs

    return Task(
        env, state, cost, {"action_dim": model.nu, "bounds": (-1.0, 1.0), "horizon": 30, "num_samples": 40}
    )


TASKS: dict[str, Callable[..., Task]] = {"pendulum": pendulum, "half_cheetah": half_cheetah}


def episode(
    task: Task, control: Controller, steps: int, watch: Callable[[float], object] = lambda reward: None
) -> float:
    """Control a task for some steps, with a call of ``watch`` after each; the sum of its rewards."""
    total = 0.0
    for _ in range(steps):
        _, reward, _, _, _ = task.env.step(control(task.state()))
        total += float(reward)
        watch(float(reward))
    return total


def planned(task: Task, **options: Any) -> Controller:
    """Return a planner for a task as a controller."""
    planner = Planner(task.cost, **{**task.planner, **options})
    return lambda state: np.asarray(planner.plan(state))
