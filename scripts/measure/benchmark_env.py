"""Measure how many pieces a second the Gymnasium environments place in random play."""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import torch

import tetris.envs
from measure.benchmark_tetris import Course, measure_courses
from measure.provenance import Measured
from tetris.envs.vector_checks import OUTPUTS

SEED = 12345
GPU_ENVS = 1 << 20
FEATURES, GPU_FEATURE_ENVS = "dt", 1 << 18  # which make 390 MB a step
_DRAWN = 64  # steps whose actions are drawn beforehand, to be repeated


def make_course(figure: str, envs: Any, output: str) -> Course:
    """Return random play in environments, whose actions come again and again."""
    generator = torch.Generator().manual_seed(SEED)
    count = int(envs.single_action_space.n)
    drawn = torch.randint(0, count, (_DRAWN, envs.num_envs), generator=generator)
    actions = list(drawn.numpy()) if output == "numpy" else list(drawn.to(getattr(envs, "device", "cpu")))
    envs.reset(seed=SEED)

    def play(steps: int) -> int:
        ended: Any = 0
        for step in range(steps):
            _, _, terminated, _, _ = envs.step(actions[step % len(actions)])
            ended = ended + terminated.sum()
        # The step after the end of a game only begins the next one. int waits for the device.
        return steps * int(envs.num_envs) - int(ended)

    return Course(f"{figure}.placements_per_second", play, _DRAWN)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the speeds of the environments."""
    name, count = tetris.envs.IDS[0], arguments.num_envs
    courses = [make_course("env.python", gymnasium.make_vec(name, 1, vectorization_mode="sync"), "numpy")]
    for output in OUTPUTS if device != "python" else ():
        envs = gymnasium.make_vec(name, count, output=output)
        courses.append(make_course(f"env.cpu.{output}.{count}", envs, output))
    if device != "python":
        envs = gymnasium.make_vec(name, count, output="torch", features=FEATURES)
        courses.append(make_course(f"env.cpu.{FEATURES}.{count}", envs, "torch"))
    if device == "cuda":
        envs = gymnasium.make_vec(name, GPU_ENVS, device="cuda")
        courses.append(make_course(f"env.cuda.{GPU_ENVS}", envs, "torch"))
        envs = gymnasium.make_vec(name, GPU_FEATURE_ENVS, device="cuda", features=FEATURES)
        courses.append(make_course(f"env.cuda.{FEATURES}.{GPU_FEATURE_ENVS}", envs, "torch"))
    told = {"environment": name, "gymnasium": gymnasium.__version__, "autoreset": "next-step"}
    return measure_courses(courses, arguments.repeats, arguments.seconds, **told)
