"""Measure how many pieces per second the Gymnasium environments place in random play.

python scripts/measure env --num-envs 1024 --json env.json
"""

import argparse
from typing import Any

import gymnasium
import torch

import tetris.envs
from measure.provenance import Measured
from measure.rollout import SEED, Course, measure_courses
from tetris.envs.vector_env import OUTPUTS

FEATURES = "dt"
GPU_ENVS = 1 << 20
GPU_FEATURE_ENVS = 1 << 18  # Their features are 390 MB per step.
_DRAWN_STEPS = 64  # Their actions are drawn beforehand, and repeated.


def make_course(figure: str, count: int, **options: Any) -> Course:
    """Return a speed test of random play in many environments of Gymnasium side by side.

    Args:
        figure: The name of its result.
        count: The number of environments.
        options: More arguments of `gymnasium.make_vec`.
    """
    envs: Any = gymnasium.make_vec(tetris.envs.IDS[0], count, **options)
    # Actions of some steps are drawn beforehand, and repeated, so that the clock measures only
    # the environments.
    generator = torch.Generator().manual_seed(SEED)
    shape = (_DRAWN_STEPS, count)
    actions: Any = torch.randint(0, int(envs.single_action_space.n), shape, generator=generator)
    takes_tensors = options.get("output") == "torch" or "device" in options
    if takes_tensors:
        actions = list(actions.to(envs.device))
    else:
        actions = list(actions.numpy())
    envs.reset(seed=SEED)

    def play(steps: int) -> int:
        """Play a number of steps, and return how many pieces were placed."""
        games_ended: Any = 0
        for step in range(steps):
            _, _, terminated, _, _ = envs.step(actions[step % _DRAWN_STEPS])
            games_ended = games_ended + terminated.sum()
        # The step after the end of a game places no piece: it only begins the next game.
        # int() waits for the device.
        return steps * count - int(games_ended)

    return Course(f"{figure}.placements_per_second", play, warm_up=_DRAWN_STEPS)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Measure random play in the environments that a device can run, in placements per second.

    Without a compiler, on the device "python", this is one game in Python. A CPU also runs many
    games in C++, with every kind of output, and a GPU in addition a million games in CUDA. With
    features of the board as observations there are fewer games on a GPU.
    """
    count = arguments.num_envs
    courses = [make_course("env.python", count=1, vectorization_mode="sync")]
    if device != "python":
        for output in OUTPUTS:
            courses.append(make_course(f"env.cpu.{output}.{count}", count, output=output))
        figure = f"env.cpu.{FEATURES}.{count}"
        courses.append(make_course(figure, count, output="torch", features=FEATURES))
    if device == "cuda":
        courses.append(make_course(f"env.cuda.{GPU_ENVS}", GPU_ENVS, device="cuda"))
        figure = f"env.cuda.{FEATURES}.{GPU_FEATURE_ENVS}"
        courses.append(make_course(figure, GPU_FEATURE_ENVS, features=FEATURES, device="cuda"))
    # The keyword arguments are details for the result.
    return measure_courses(
        courses,
        arguments.repeats,
        arguments.seconds,
        environment=tetris.envs.IDS[0],
        gymnasium=gymnasium.__version__,
        autoreset="next-step",
    )
