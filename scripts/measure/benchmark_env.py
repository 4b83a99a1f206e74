"""Measure how many pieces a second the Gymnasium environments place in random play.

python scripts/benchmark_env.py --num-envs 1024
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import torch
from gymnasium.vector import AutoresetMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tetris.envs
from measure.cli import add_length, make_parser, measurement, read
from measure.provenance import title, write_result
from measure.speed import Course, measure, median_and_range
from tetris.commands.command_line import one_line_errors, one_of, positive_int, run
from tetris.envs.vector_checks import OUTPUTS
from tetris.evaluation.text_table import table

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


def make_courses(arguments: argparse.Namespace, device: str) -> list[tuple[int, Course]]:
    """Return what is measured on this machine, each with its number of games."""
    name, mode, count = arguments.id, _MODES[arguments.autoreset], arguments.num_envs
    single = gymnasium.make_vec(name, 1, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode})
    courses = [(1, _course("python", "env.python", single, "numpy"))]
    for output in OUTPUTS if device != "python" else ():
        envs = gymnasium.make_vec(name, count, output=output, autoreset_mode=mode)
        courses.append((count, _course(f"cpu, {output}", f"env.cpu.{output}.{count}", envs, output)))
    if device == "cuda":
        envs = gymnasium.make_vec(name, GPU_ENVS, device="cuda", autoreset_mode=mode)
        courses.append((GPU_ENVS, _course("cuda", f"env.cuda.{GPU_ENVS}", envs, "torch")))
    return courses


def _course(name: str, figure: str, envs: Any, output: str) -> Course:
    generator = torch.Generator().manual_seed(SEED)
    count = int(envs.single_action_space.n)
    drawn = torch.randint(0, count, (_DRAWN, envs.num_envs), generator=generator)
    actions = list(drawn.numpy()) if output == "numpy" else list(drawn.to(getattr(envs, "device", "cpu")))
    return Course(name, f"{figure}.placements_per_second", stepper(envs, actions), _DRAWN)


@measurement
def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print the table, write the figures."""
    parser = make_parser(__doc__)
    known, ids = one_of("environment", tetris.envs.IDS), tetris.envs.IDS
    parser.add_argument("--id", type=known, default=ids[0], help=f"environment (default: {ids[0]})")
    parser.add_argument("--num-envs", type=positive_int, default=1024, help="on the CPU (default: 1024)")
    modes = one_of("way to autoreset", _MODES)
    parser.add_argument("--autoreset", type=modes, default="next-step", help=" or ".join(_MODES))
    add_length(parser)
    arguments, device = read(parser, argv)
    with one_line_errors():
        courses = make_courses(arguments, device)
    measure([course for _, course in courses], arguments.repeats, arguments.seconds)
    rows = []
    for games, course in courses:
        speeds = (*median_and_range(course.speeds), median_and_range(course.of_processor)[0])
        rows.append([course.name, str(games), *(f"{each:,.0f}" for each in speeds)])
    header = ["placements/s", "games", "median", "least", "most", "per core"]
    print(f"{arguments.id}, random play, {title(device)}\n{table(header, rows)}")
    wall, processor = (
        {course.figure: median_and_range(getattr(course, clock)) for _, course in courses}
        for clock in ("speeds", "of_processor")
    )
    data = {
        "environment": arguments.id,
        "autoreset": arguments.autoreset,
        "repeats": arguments.repeats,
        "seconds": arguments.seconds,
        "ranges": {name: list(values[1:]) for name, values in wall.items()},
        "of_processor_time": {name: values[0] for name, values in processor.items()},
    }
    figures = {name: values[0] for name, values in wall.items()}
    write_result(arguments.json, figures, data, device, extra_versions={"gymnasium": gymnasium.__version__})


if __name__ == "__main__":
    run(main)
