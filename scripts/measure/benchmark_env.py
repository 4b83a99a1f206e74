"""Measure how many pieces a second the Gymnasium environments place in random play.

python scripts/benchmark_env.py --num-envs 1024
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import torch
from gymnasium.vector import AutoresetMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tetris.envs
from kernels.files import check_writable
from measure.provenance import title, write_result
from measure.speed import Course, Play, add_length, measure, median_and_range
from tetris.commands.arguments import add_device
from tetris.commands.command_line import Parser, one_line_errors, one_of, positive_int, run
from tetris.devices import choose_device
from tetris.envs.vector_checks import OUTPUTS
from tetris.evaluation.text_table import table

SEED = 12345
GPU_ENVS = 1 << 20
_DRAWN = 64  # steps whose actions are drawn beforehand, to be repeated
_MODES = {"next-step": AutoresetMode.NEXT_STEP, "same-step": AutoresetMode.SAME_STEP}


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...]")
    parser.add_argument(
        "--id",
        type=one_of("environment", tetris.envs.IDS),
        default=tetris.envs.IDS[0],
        metavar="ID",
        help="of the environment (default: %(default)s)",
    )
    parser.add_argument(
        "--num-envs", type=positive_int, default=1024, metavar="N", help="games on the CPU (default: 1024)"
    )
    parser.add_argument(
        "--autoreset",
        type=one_of("way to autoreset", _MODES),
        default="next-step",
        metavar="MODE",
        help=f"{' or '.join(_MODES)} (default: %(default)s)",
    )
    add_device(parser, ("auto", "cpu", "cuda"), what="engines, all with auto")
    add_length(parser)
    return parser.parse_args(argv)


def stepper(envs: Any, actions: Sequence[Any]) -> Play:
    """Return what takes steps with actions that come again and again, and waits for the device."""
    envs.reset(seed=SEED)

    def play(steps: int) -> tuple[float, float, float]:
        ended: Any = 0
        began, processor = time.perf_counter(), time.process_time()
        for step in range(steps):
            _, _, terminated, _, _ = envs.step(actions[step % len(actions)])
            ended = ended + terminated.sum()
        ended = int(ended)  # waits for the device
        seconds, of_processor = time.perf_counter() - began, time.process_time() - processor
        # The step after the end of a game places nothing, unless the one that ended it began the next one.
        idle = 0 if envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP else ended
        return steps * envs.num_envs - idle, seconds, of_processor

    return play


def make_courses(arguments: argparse.Namespace) -> list[tuple[int, Course]]:
    """Return what is measured on this machine, each with its number of games.

    Raises:
        BuildError: If the engine could not be built.
        ValueError: If there is no such device here.
    """
    mode, best = _MODES[arguments.autoreset], choose_device(arguments.device)
    vector = {"autoreset_mode": mode}
    single = gymnasium.make_vec(arguments.id, 1, vectorization_mode="sync", vector_kwargs=vector)
    courses = [(1, _course("python", "env.python", single, "numpy"))]
    if best == "python":
        return courses
    for output in OUTPUTS:
        envs = gymnasium.make_vec(arguments.id, arguments.num_envs, output=output, autoreset_mode=mode)
        figure = f"env.cpu.{output}.{arguments.num_envs}"
        courses.append((arguments.num_envs, _course(f"cpu, {output}", figure, envs, output)))
    if best == "cuda":
        envs = gymnasium.make_vec(arguments.id, GPU_ENVS, device="cuda", autoreset_mode=mode)
        courses.append((GPU_ENVS, _course("cuda", f"env.cuda.{GPU_ENVS}", envs, "torch")))
    return courses


def _course(name: str, figure: str, envs: Any, output: str) -> Course:
    generator = torch.Generator().manual_seed(SEED)
    count = int(envs.single_action_space.n)
    drawn = torch.randint(0, count, (_DRAWN, envs.num_envs), generator=generator)
    actions = list(drawn.numpy()) if output == "numpy" else list(drawn.to(getattr(envs, "device", "cpu")))
    return Course(name, f"{figure}.placements_per_second", stepper(envs, actions), _DRAWN)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the figures."""
    arguments = parse_arguments(argv)
    with one_line_errors():
        if arguments.json:
            check_writable(arguments.json)
        courses = make_courses(arguments)
    measure([course for _, course in courses], arguments.repeats, arguments.seconds)
    device = "cuda" if courses[-1][1].name == "cuda" else "cpu"
    rows = []
    for games, course in courses:
        of_core = median_and_range(course.of_processor)[0]
        speeds = [f"{each:,.0f}" for each in (*median_and_range(course.speeds), of_core)]
        rows.append([course.name, str(games), *speeds])
    header = ["placements/s", "games", "median", "least", "most", "per core"]
    print(f"{arguments.id}, random play, {title(device)}\n{table(header, rows)}")
    if arguments.json:
        data = {
            "environment": arguments.id,
            "autoreset": arguments.autoreset,
            "repeats": arguments.repeats,
            "seconds": arguments.seconds,
            "ranges": {course.figure: list(median_and_range(course.speeds)[1:]) for _, course in courses},
            "of_processor_time": {
                course.figure: median_and_range(course.of_processor)[0] for _, course in courses
            },
        }
        figures = {course.figure: median_and_range(course.speeds)[0] for _, course in courses}
        packages = {"gymnasium": gymnasium.__version__}
        write_result(arguments.json, figures, data, device, extra_versions=packages)
    return 0


if __name__ == "__main__":
    run(main)
