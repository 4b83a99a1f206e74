"""Measure how many pieces per second the Gymnasium environments place in random play.

python scripts/measure env --num-envs 1024 --json env.json
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import torch

import tetris.envs
from measure.provenance import Measured
from measure.rollout import SEED, Course, measure_courses
from tetris.envs.vector_env import OUTPUTS

FEATURES, GPU_ENVS, GPU_FEATURE_ENVS = "dt", 1 << 20, 1 << 18  # with features they make 390 MB a step
_DRAWN = 64  # steps whose actions are drawn beforehand, to be repeated


def make_course(figure: str, count: int, **options: Any) -> Course:
    """Return random play in environments, whose actions come again and again."""
    envs: Any = gymnasium.make_vec(tetris.envs.IDS[0], count, **options)
    generator = torch.Generator().manual_seed(SEED)
    drawn = torch.randint(0, int(envs.single_action_space.n), (_DRAWN, count), generator=generator)
    in_torch = options.get("output") == "torch" or "device" in options
    actions = list(drawn.to(getattr(envs, "device", "cpu")) if in_torch else drawn.numpy())
    envs.reset(seed=SEED)

    def play(steps: int) -> int:
        ended: Any = 0
        for step in range(steps):
            _, _, terminated, _, _ = envs.step(actions[step % len(actions)])
            ended = ended + terminated.sum()
        # The step after the end of a game only begins the next one. int waits for the device.
        return steps * count - int(ended)

    return Course(f"{figure}.placements_per_second", play, _DRAWN)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the speeds of the environments."""
    count, gpu = arguments.num_envs, {"device": "cuda"}
    courses = [make_course("env.python", 1, vectorization_mode="sync")]
    if device != "python":
        courses += [make_course(f"env.cpu.{each}.{count}", count, output=each) for each in OUTPUTS]
        courses.append(make_course(f"env.cpu.{FEATURES}.{count}", count, output="torch", features=FEATURES))
    if device == "cuda":
        courses.append(make_course(f"env.cuda.{GPU_ENVS}", GPU_ENVS, **gpu))
        figure = f"env.cuda.{FEATURES}.{GPU_FEATURE_ENVS}"
        courses.append(make_course(figure, GPU_FEATURE_ENVS, features=FEATURES, **gpu))
    about = {"environment": tetris.envs.IDS[0], "gymnasium": gymnasium.__version__, "autoreset": "next-step"}
    return measure_courses(courses, arguments.repeats, arguments.seconds, **about)
