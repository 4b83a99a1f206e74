"""Plan in a simulator with the cross-entropy method: swing a pendulum up, make a cheetah run.

python scripts/plan_control.py pendulum
python scripts/plan_control.py half_cheetah --gif cheetah.gif

All tasks but the pendulum need MuJoCo: pip install -e ".[mujoco]". Where there is no display
set MUJOCO_GL=egl for their movies; the movie of the pendulum needs pygame.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
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

# The lengths of the two links of Reacher-v5.
_LINKS = (0.1, 0.11)


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

    # Shape ([B,] 1): all N plans start from the same state.
    angle = state[..., None, 0]
    speed = state[..., None, 1]
    total = torch.zeros(1, dtype=plans.dtype, device=plans.device)
    for torque in plans[..., 0].unbind(-1):  # Shape ([B,] N): the torques of one step.
        # The deviation from upright, between -pi and pi.
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


def sum_running_rewards(positions: Any, actions: Any, dt: float, control_cost: float) -> Any:
    """Return the sums of the rewards of N plans in HalfCheetah-v5 or Swimmer-v5, shape (N,).

    The reward of a step is the forward velocity minus ``control_cost`` times the sum of the
    squared actions.

    Args:
        positions: MuJoCo's positions before the first and after each action, shape (N, H + 1,
            P). The first position is x.
        actions: The actions, shape (N, H, A).
        dt: The duration of a step in seconds.
        control_cost: The weight of the squared actions.
    """
    # The velocity of a step is its distance / dt, so their sum is the whole distance / dt.
    distance = positions[:, -1, 0] - positions[:, 0, 0]
    return distance / dt - control_cost * (actions**2).sum((1, 2))


def sum_reaching_rewards(positions: Any, actions: Any, dt: float) -> Any:
    """Return the sums of the rewards of N plans in Reacher-v5, shape (N,).

    The reward of a step is the negative distance of the fingertip to the target, minus the sum
    of the squared actions. The arguments are those of ``sum_running_rewards``. The positions
    are the angles of two joints, and x and y of the target.
    """
    import numpy as np

    # A reward depends on the state after the action, so the first state is left out. The
    # second joint's angle is relative to the first link, so the sum is the second link's angle.
    angles = positions[:, 1:, :2].cumsum(-1)
    target = positions[:, 1:, 2:4]
    fingertip = np.stack([np.cos(angles) @ _LINKS, np.sin(angles) @ _LINKS], axis=-1)
    distances = np.linalg.norm(fingertip - target, axis=-1)
    return -distances.sum(1) - (actions**2).sum((1, 2))


class Simulator:
    """A task of Gymnasium whose plans MuJoCo simulates."""

    def __init__(self, env: Any, sum_rewards: Callable[..., Any], threads: int) -> None:
        """Make a simulator.

        Args:
            env: The environment.
            sum_rewards: Computes the sums of the rewards, as ``sum_running_rewards`` does.
            threads: The number of threads that simulate plans.
        """
        import mujoco
        from mujoco import rollout

        self._env = env
        self._sum_rewards = sum_rewards
        self._pool = rollout.Rollout(nthread=threads)
        # Each thread needs memory of its own for a simulation.
        self._data = [mujoco.MjData(env.model) for _ in range(threads)]
        self._kind = mujoco.mjtState.mjSTATE_FULLPHYSICS
        self._size = mujoco.mj_stateSize(env.model, self._kind)

    def read_state(self) -> Any:
        """Return the current state of MuJoCo, shape (size,)."""
        import mujoco
        import numpy as np

        state = np.empty(self._size)
        mujoco.mj_getState(self._env.model, self._env.data, state, self._kind)
        return state

    def cost(self, start: Tensor, plans: Tensor) -> Any:
        """Simulate plans, and return their costs: the sums of their rewards, negated.

        Args:
            start: The state from which the plans begin, shape (size,).
            plans: The actions of every plan, shape (N, H, A).

        Returns:
            The costs, shape (N,).
        """
        import numpy as np

        env = self._env
        actions = plans.double().numpy()
        # The environment repeats every action for `frame_skip` steps of the simulator.
        controls = actions.repeat(env.frame_skip, axis=1)
        starts = np.broadcast_to(start.numpy(), (len(actions), self._size))
        # `states` has the state after every step of the simulator, shape (N, steps, size). Only
        # those after the last step of each action are needed.
        states, _ = self._pool.rollout(env.model, self._data, starts, controls)
        after_actions = states[:, env.frame_skip - 1 :: env.frame_skip]
        # The states before and after each action, shape (N, H + 1, size). The first number of a
        # state is the time. The next `nq` numbers are the positions.
        all_states = np.concatenate([starts[:, np.newaxis], after_actions], axis=1)
        positions = all_states[..., 1 : 1 + env.model.nq]
        return -self._sum_rewards(positions, actions, env.dt)


def make_simulated_task(
    name: str,
    sum_rewards: Callable[..., Any],
    seed: int,
    render: bool = False,
    threads: int | None = None,
) -> Task:
    """Return a task of controlling an environment that MuJoCo simulates.

    Args:
        name: The name of the environment in Gymnasium.
        sum_rewards: Computes the sums of the rewards, as ``sum_running_rewards`` does.
        seed: The seed of the start.
        render: Whether the environment renders the frames of a movie.
        threads: The number of threads that simulate plans. None: one for every core.

    Raises:
        ValueError: If MuJoCo is not installed, or if there is no display for a movie.
    """
    import gymnasium

    try:
        import mujoco
    except ImportError as error:
        raise ValueError('expected MuJoCo, found none: pip install -e ".[mujoco]"') from error
    # Otherwise MuJoCo writes its warnings to a file in the current folder.
    mujoco.set_mju_user_warning(logging.getLogger("mujoco").warning)
    options: dict[str, Any] = {}
    if render:
        options = {
            "render_mode": "rgb_array",
            "camera_name": "track",
            "width": 640,
            "height": 360,
        }
    env: Any = gymnasium.make(name, **options).unwrapped
    env.reset(seed=seed)
    if render:
        try:
            env.render()
        except mujoco.FatalError as error:
            raise ValueError(
                "expected a display for a movie, found none: set MUJOCO_GL=egl"
            ) from error
    simulator = Simulator(env, sum_rewards, threads or usable_cores())
    # `nu` is MuJoCo's number of actuators.
    planner = {"action_dim": env.model.nu, "bounds": (-1.0, 1.0), "num_samples": 40}
    return Task(env, simulator.read_state, simulator.cost, planner)


TASKS: dict[str, Callable[..., Task]] = {
    "pendulum": pendulum,
    "half_cheetah": partial(
        make_simulated_task,
        "HalfCheetah-v5",
        partial(sum_running_rewards, control_cost=0.1),
    ),
    "swimmer": partial(
        make_simulated_task,
        "Swimmer-v5",
        partial(sum_running_rewards, control_cost=1e-4),
    ),
    "reacher": partial(make_simulated_task, "Reacher-v5", sum_reaching_rewards),
}


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
    import numpy as np
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
        # Options that the user has given take precedence over those of the task.
        options = dict(task.planner)
        for name in ("seed", "num_samples", "iterations", "horizon"):
            value = getattr(arguments, name)
            if value is not None:
                options[name] = value
        planner = Planner(task.cost, **options)
        while len(rewards) < arguments.steps:
            action = np.asarray(planner.plan(task.state()))
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
