"""Measure how many pieces a second the Gymnasium environments place in random play.

python scripts/benchmark_env.py --num-envs 1024
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import torch
from gymnasium.vector import AutoresetMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tetris.envs
from measure.cli import add_length, measurement
from measure.provenance import Measured
from measure.speed import Course, measure_courses
from tetris.commands.command_line import one_line_errors, one_of, positive_int, run
from tetris.envs.vector_checks import OUTPUTS

SEED = 12345
GPU_ENVS = 1 << 20
_DRAWN = 64  # steps whose actions are drawn beforehand, to be repeated
_MODES = {"next-step": AutoresetMode.NEXT_STEP, "same-step": AutoresetMode.SAME_STEP}


def stepper(envs: Any, actions: Sequence[Any]) -> Callable[[int], int]:
    """Return what takes steps with actions that come again and again, and waits for the device."""
    envs.reset(seed=SEED)

    def play(steps: int) -> int:
        ended: Any = 0
        for step in range(steps):
            _, _, terminated, _, _ = envs.step(actions[step % len(actions)])
            ended = ended + terminated.sum()
        idle = int(ended)  # waits for the device
        # The step after the end of a game places nothing, unless the one that ended it began the next one.
        if envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP:
            idle = 0
        return steps * int(envs.num_envs) - idle

    return play


def make_course(figure: str, envs: Any, output: str) -> Course:
    """Return random play in environments."""
    generator = torch.Generator().manual_seed(SEED)
    count = int(envs.single_action_space.n)
    drawn = torch.randint(0, count, (_DRAWN, envs.num_envs), generator=generator)
    actions = list(drawn.numpy()) if output == "numpy" else list(drawn.to(getattr(envs, "device", "cpu")))
    return Course(f"{figure}.placements_per_second", stepper(envs, actions), _DRAWN)


def make_courses(arguments: argparse.Namespace, device: str) -> list[Course]:
    """Return what is measured on this machine."""
    name, mode, count = arguments.id, _MODES[arguments.autoreset], arguments.num_envs
    single = gymnasium.make_vec(name, 1, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode})
    courses = [make_course("env.python", single, "numpy")]
    for output in OUTPUTS if device != "python" else ():
        envs = gymnasium.make_vec(name, count, output=output, autoreset_mode=mode)
        courses.append(make_course(f"env.cpu.{output}.{count}", envs, output))
    if device == "cuda":
        envs = gymnasium.make_vec(name, GPU_ENVS, device="cuda", autoreset_mode=mode)
        courses.append(make_course(f"env.cuda.{GPU_ENVS}", envs, "torch"))
    return courses


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give a parser the environment."""
    known, ids = one_of("environment", tetris.envs.IDS), tetris.envs.IDS
    parser.add_argument("--id", type=known, default=ids[0], help=f"environment (default: {ids[0]})")
    parser.add_argument("--num-envs", type=positive_int, default=1024, help="on the CPU (default: 1024)")
    modes = one_of("way to autoreset", _MODES)
    parser.add_argument("--autoreset", type=modes, default="next-step", help=" or ".join(_MODES))
    add_length(parser)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the speeds of the environments."""
    with one_line_errors():
        courses = make_courses(arguments, device)
    figures, ranges = measure_courses(courses, arguments.repeats, arguments.seconds)
    data = {
        "environment": arguments.id,
        "gymnasium": gymnasium.__version__,
        "autoreset": arguments.autoreset,
        "repeats": arguments.repeats,
        "seconds": arguments.seconds,
        "ranges": ranges,
        "of_processor_time": {each.figure: statistics.median(each.of_processor) for each in courses},
    }
    return figures, data, {}


main = measurement(measure, __doc__, add_arguments)

if __name__ == "__main__":
    run(main)
