"""Plan in a simulator with the cross-entropy method: swing a pendulum up, make a cheetah run.

python scripts/plan_control.py pendulum
python scripts/plan_control.py half_cheetah --gif cheetah.gif

The cheetah needs MuJoCo: pip install -e ".[mujoco]". Where there is no display set
MUJOCO_GL=egl for its movie; the movie of the pendulum needs pygame.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from kernels.support.files import check_writable
    from kernels.support.names import unknown_name
    from kernels.support.system import usable_cores
    from tetris.commands.command_line import (
        Parser,
        one_line_errors,
        path_ending,
        run,
        seed,
        up_to,
    )

if TYPE_CHECKING:
    from torch import Tensor

# A movie.
FRAMES_PER_SECOND = 20.0
_WIDTH = 320
_COLORS = 64

# The equations of Pendulum-v1.
_STEP = 0.05  # dt
_TORQUE = 3.0  # 3 / (m l^2)
_GRAVITY = 15.0  # 3 g / (2 l)

# HalfCheetah-v5. A state of MuJoCo has the time and then the positions; the cheetah's first one
# is x.
_X = 1
_CONTROL_COST = 0.1


class Task(NamedTuple):
    """An environment, and what a planner needs to control it.

    Attributes:
        env: The unwrapped environment of Gymnasium.
        state: Returns the current state of the simulator.
        cost: Maps a state and plans to the costs of the plans.
        planner: The arguments of `cem.Planner` for this task.
    """

    env: Any
    state: Callable[[], Any]
    cost: Callable[[Any, Tensor], Any]
    planner: dict[str, Any]


def pendulum_cost(state: Tensor, plans: Tensor) -> Tensor:
    """Return the costs of N plans: the sums of the rewards of Pendulum-v1, negated.

    Args:
        state: The angle from the upright position and the angular velocity, shape ([B,] 2).
        plans: The torques of every plan, shape ([B,] N, horizon, 1).

    Returns:
        The costs, shape ([B,] N).
    """
    import torch

    angle = state[..., None, 0]
    speed = state[..., None, 1]
    total = torch.zeros(1, dtype=plans.dtype, device=plans.device)
    for torque in plans[..., 0].unbind(-1):
        # The same angle between -pi and pi; 0 is upright.
        error = torch.remainder(angle + torch.pi, 2 * torch.pi) - torch.pi
        total = total + error.square() + 0.1 * speed.square() + 0.001 * torque.square()
        # Pendulum-v1 integrates by the semi-implicit Euler method and limits the speed to 8.
        speed = (speed + (_GRAVITY * angle.sin() + _TORQUE * torque) * _STEP).clamp(-8.0, 8.0)
        angle = angle + speed * _STEP
    return total


def pendulum(seed: int, render: bool = False) -> Task:
    """Return the task of swinging up Pendulum-v1 from a random start.

    The torque is too weak to lift the pendulum in one swing.

    Args:
        seed: The seed of the start.
        render: Whether the environment renders the frames of a movie.
    """
    import gymnasium
    import torch

    env: Any = gymnasium.make(
        "Pendulum-v1", render_mode="rgb_array" if render else None
    ).unwrapped
    env.reset(seed=seed)

    def state() -> Tensor:
        return torch.tensor(env.state, dtype=torch.float32)

    planner = {"action_dim": 1, "bounds": (-2.0, 2.0)}
    return Task(env, state, pendulum_cost, planner)


def half_cheetah(seed: int, render: bool = False) -> Task:
    """Return the task of making HalfCheetah-v5 run: its environment, and the cost of a plan.

    A plan is a sequence of actions. To compute costs, MuJoCo simulates a batch of plans from
    the environment's current state, on all cores.

    Args:
        seed: The seed of the start.
        render: Whether the environment renders the frames of a movie.

    Raises:
        ValueError: If MuJoCo is not installed.
    """
    import gymnasium
    import numpy as np

    try:
        import mujoco
        from mujoco import rollout
    except ImportError as error:
        raise ValueError('expected MuJoCo, found none: pip install -e ".[mujoco]"') from error
    # By default MuJoCo also writes its warnings to a file.
    mujoco.set_mju_user_warning(logging.getLogger("mujoco").warning)
    options: dict[str, Any] = {}
    if render:
        options = {
            "render_mode": "rgb_array",
            "camera_name": "track",
            "width": 640,
            "height": 360,
        }
    env: Any = gymnasium.make("HalfCheetah-v5", **options).unwrapped
    env.reset(seed=seed)
    model = env.model
    threads = usable_cores()
    thread_data = [mujoco.MjData(model) for _ in range(threads)]
    pool = rollout.Rollout(nthread=threads)
    full_state = mujoco.mjtState.mjSTATE_FULLPHYSICS
    size = mujoco.mj_stateSize(model, full_state)

    def state() -> Any:
        """Return the current state of MuJoCo, shape (size,)."""
        current = np.empty(size)
        mujoco.mj_getState(model, env.data, current, full_state)  # It writes into `current`.
        return current

    def cost(start: Tensor, plans: Tensor) -> Any:
        """Simulate plans, and return their costs: the sums of their rewards, negated.

        As in Gymnasium, the reward of a step is the forward velocity minus `_CONTROL_COST`
        times the sum of the squared actions.

        Args:
            start: The state of the simulator from which the plans begin, shape (size,).
            plans: The actions of every plan, shape (plans, steps, actions).

        Returns:
            The costs, shape (plans,).
        """
        actions = plans.double().numpy()
        # The environment repeats every action for `frame_skip` steps of the simulator.
        controls = actions.repeat(env.frame_skip, axis=1)
        starts = np.broadcast_to(start.numpy(), (len(actions), size))
        states, _ = pool.rollout(model, thread_data, starts, controls)
        # The velocity of a step is its distance / dt, so their sum is the whole distance / dt.
        forward = (states[:, -1, _X] - float(start[_X])) / env.dt
        return _CONTROL_COST * np.square(actions).sum((1, 2)) - forward

    planner = {"action_dim": model.nu, "bounds": (-1.0, 1.0), "num_samples": 40}
    return Task(env, state, cost, planner)


TASKS: dict[str, Callable[..., Task]] = {"pendulum": pendulum, "half_cheetah": half_cheetah}


def main(argv: Sequence[str] | None = None) -> int:
    """Control a task by planning, and print the return of the episode."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...] TASK")
    parser.add_argument("task", metavar="TASK", help=", ".join(TASKS))
    parser.add_argument(
        "--steps",
        type=up_to(1_000_000),
        default=200,
        help="of the episode (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=seed, default=2, help="of start and plans (default: %(default)s)"
    )
    parser.add_argument(
        "--num-samples", type=up_to(100_000), metavar="N", help="plans per iteration"
    )
    parser.add_argument(
        "--iterations", type=up_to(1_000), default=3, help="a step (default: %(default)s)"
    )
    parser.add_argument(
        "--horizon",
        type=up_to(1_000),
        default=30,
        help="actions per plan (default: %(default)s)",
    )
    parser.add_argument("--gif", type=path_ending(".gif"), metavar="FILE", help="write a movie")
    arguments = parser.parse_args(argv)
    if arguments.task not in TASKS:
        parser.error(str(unknown_name("task", arguments.task, TASKS)))
    from gymnasium.error import DependencyNotInstalled

    from cem import Planner
    from tetris.view.images import check_gif

    rewards: list[float] = []
    frames: list[Any] = []
    with one_line_errors():
        if arguments.gif:
            check_writable(arguments.gif)
            check_gif(FRAMES_PER_SECOND)
        task = TASKS[arguments.task](arguments.seed, render=arguments.gif is not None)
        options = dict(task.planner)
        for name in ("seed", "num_samples", "iterations", "horizon"):
            value = getattr(arguments, name)
            if value is not None:
                options[name] = value
        planner = Planner(task.cost, **options)
        while len(rewards) < arguments.steps:
            action = planner.plan(task.state()).numpy()
            _, reward, *_ = task.env.step(action)
            rewards.append(float(reward))
            if arguments.gif:
                try:
                    frames.append(task.env.render())
                except DependencyNotInstalled as error:
                    raise ValueError(f"a movie needs more: {error}") from error
            if len(rewards) % 25 == 0:
                print(f"step {len(rewards)}: return {sum(rewards):,.1f}", flush=True)
    print(f"{arguments.task}: return {sum(rewards):,.1f} in {len(rewards)} steps")
    if arguments.gif:
        write_movie(frames, arguments.gif)
    return 0


def write_movie(frames: Sequence[Any], path: Path) -> None:
    """Write pictures as a looping GIF.

    Args:
        frames: The pictures, arrays of shape (height, width, 3), uint8.
        path: The file to write.
    """
    from PIL import Image

    from tetris.view.images import save_gif

    height, width, _ = frames[0].shape
    size = _WIDTH, round(_WIDTH * height / width)
    small = (Image.fromarray(frame).resize(size).quantize(_COLORS) for frame in frames)
    save_gif(path, small, FRAMES_PER_SECOND)


if __name__ == "__main__":
    run(main)
