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
_DRAWN = 64  # Steps whose actions are drawn beforehand, and repeated.


def make_course(figure: str, count: int, **options: Any) -> Course:
    """Return random play in environments, which repeats its actions."""
    envs: Any = gymnasium.make_vec(tetris.envs.IDS[0], count, **options)
    generator = torch.Generator().manual_seed(SEED)
    shape = (_DRAWN, count)
    drawn = torch.randint(0, int(envs.single_action_space.n), shape, generator=generator)
    if options.get("output") == "torch" or "device" in options:
        actions: list[Any] = list(drawn.to(envs.device))
    else:
        actions = list(drawn.numpy())
    envs.reset(seed=SEED)

    def play(steps: int) -> int:
        games_ended: Any = 0
        for step in range(steps):
            _, _, terminated, _, _ = envs.step(actions[step % _DRAWN])
            games_ended = games_ended + terminated.sum()
        # The step after the end of a game only begins the next one. int() waits for the device.
        return steps * count - int(games_ended)

    return Course(f"{figure}.placements_per_second", play, _DRAWN)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the speeds of the environments."""
    count = arguments.num_envs
    courses = [make_course("env.python", 1, vectorization_mode="sync")]
    if device != "python":
        for output in OUTPUTS:
            courses.append(make_course(f"env.cpu.{output}.{count}", count, output=output))
        figure = f"env.cpu.{FEATURES}.{count}"
        courses.append(make_course(figure, count, output="torch", features=FEATURES))
    if device == "cuda":
        courses.append(make_course(f"env.cuda.{GPU_ENVS}", GPU_ENVS, device="cuda"))
        figure = f"env.cuda.{FEATURES}.{GPU_FEATURE_ENVS}"
        courses.append(make_course(figure, GPU_FEATURE_ENVS, features=FEATURES, device="cuda"))
    return measure_courses(
        courses,
        arguments.repeats,
        arguments.seconds,
        environment=tetris.envs.IDS[0],
        gymnasium=gymnasium.__version__,
        autoreset="next-step",
    )
