"""Measure how many pieces a second the Gymnasium environments place in random play.

python scripts/benchmark_env.py --num-envs 1024
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import torch
from _machine import processor_of
from _results import describe
from gymnasium.vector import AutoresetMode

import tetris.envs
from kernels.files import check_writable, write_text
from tetris.commands.arguments import add_device
from tetris.commands.command_line import Parser, one_line_errors, one_of, positive_int, positive_seconds, run
from tetris.devices import choose_device
from tetris.envs.vector_checks import OUTPUTS
from tetris.evaluation.text_table import table
from tetris.progress import progress

SEED = 12345
GPU_ENVS = 1 << 20
_DRAWN = 64  # steps whose actions are drawn beforehand, to be repeated
_MODES = {"next-step": AutoresetMode.NEXT_STEP, "same-step": AutoresetMode.SAME_STEP}


@dataclass
class Course:
    """One way to step games that is measured.

    Attributes:
        name: What to call it.
        figure: Name of its figure.
        envs: The games.
        actions: Actions of some steps, as the games take them.
        steps: Steps of one measurement.
        wall: Placements a second, one for each measurement.
        processor: Placements a second of processor time, of all threads together; likewise.
    """

    name: str
    figure: str
    envs: Any
    actions: list[Any]
    steps: int = 1
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def play(self, steps: int) -> tuple[float, float, float]:
        """Play on; return the placements, the seconds and the seconds of processor time."""
        ended: Any = 0
        wall, processor = time.perf_counter(), time.process_time()
        for step in range(steps):
            _, _, terminated, _, _ = self.envs.step(self.actions[step % len(self.actions)])
            ended = ended + terminated.sum()
        ended = int(ended)  # waits for the device
        seconds, processor_seconds = time.perf_counter() - wall, time.process_time() - processor
        # The step after the end of a game places nothing, unless the one that ended it began the next one.
        idle = 0 if self.envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP else ended
        return steps * self.envs.num_envs - idle, seconds, processor_seconds

    def prepare(self, seconds: float) -> None:
        """Play until games are at all stages, and find out how much is so many seconds."""
        self.envs.reset(seed=SEED)
        self.play(_DRAWN)
        _, taken, _ = self.play(_DRAWN)
        self.steps = max(1, math.ceil(_DRAWN * seconds / taken))

    def measure(self) -> None:
        """Play one measurement."""
        placements, wall, processor = self.play(self.steps)
        self.wall.append(placements / wall)
        self.processor.append(placements / max(processor, 1e-9))


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
        "--num-envs",
        type=positive_int,
        default=1024,
        metavar="N",
        help="games on the CPU (default: 1024)",
    )
    parser.add_argument(
        "--autoreset",
        type=one_of("way to autoreset", _MODES),
        default="next-step",
        metavar="MODE",
        help=f"{' or '.join(_MODES)} (default: %(default)s)",
    )
    add_device(parser, ("auto", "cpu", "cuda"), what="engines, all with auto")
    parser.add_argument(
        "--repeats", type=positive_int, default=7, metavar="N", help="measurements (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds",
        type=positive_seconds,
        default=1.0,
        metavar="S",
        help="length of a measurement (default: %(default)g)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, and what they hold for")
    return parser.parse_args(argv)


def make_courses(arguments: argparse.Namespace) -> list[Course]:
    """Return what is measured on this machine.

    Raises:
        BuildError: If the engine could not be built.
        ValueError: If there is no such device here.
    """
    mode = _MODES[arguments.autoreset]
    single = gymnasium.make_vec(
        arguments.id, 1, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
    )
    courses = [_course("python", "env.python", single, "numpy")]
    best = choose_device(arguments.device)
    if best == "python":
        return courses
    for output in OUTPUTS:
        envs = gymnasium.make_vec(arguments.id, arguments.num_envs, output=output, autoreset_mode=mode)
        courses.append(_course(f"cpu, {output}", f"env.cpu.{output}.{arguments.num_envs}", envs, output))
    if best == "cuda":
        envs = gymnasium.make_vec(arguments.id, GPU_ENVS, device="cuda", autoreset_mode=mode)
        courses.append(_course("cuda", f"env.cuda.{GPU_ENVS}", envs, "torch"))
    return courses


def _course(name: str, figure: str, envs: Any, output: str) -> Course:
    generator = torch.Generator().manual_seed(SEED)
    count = int(envs.single_action_space.n)
    drawn = torch.randint(0, count, (_DRAWN, envs.num_envs), generator=generator)
    actions = list(drawn.numpy()) if output == "numpy" else list(drawn.to(getattr(envs, "device", "cpu")))
    return Course(name, f"{figure}.placements_per_second", envs, actions)


def speed_table(courses: Sequence[Course], title: str) -> str:
    """Return the speeds side by side; the last is a second of processor time's, busy machine or not."""
    header = ["placements/s", "games", "median", "least", "most", "per core"]
    rows = []
    for course in courses:
        shown = (statistics.median(course.wall), min(course.wall), max(course.wall))
        of_core = statistics.median(course.processor)
        speeds = [f"{each:,.0f}" for each in (*shown, of_core)]
        rows.append([course.name, str(course.envs.num_envs), *speeds])
    return f"{title}\n{table(header, rows)}"


def report(courses: Sequence[Course], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the figures with all that they hold for, as plain values for JSON."""
    device = "cuda" if courses[-1].name == "cuda" else "cpu"
    held = describe("env", device, environments=True, beside=True)
    return {
        **held,
        "machine": held["machine"] | {"load_average": os.getloadavg()[0]},
        "versions": held["versions"] | {"gymnasium": gymnasium.__version__},
        "environment": arguments.id,
        "autoreset": arguments.autoreset,
        "repeats": arguments.repeats,
        "seconds": arguments.seconds,
        "figures": {course.figure: statistics.median(course.wall) for course in courses},
        "ranges": {course.figure: [min(course.wall), max(course.wall)] for course in courses},
        "of_processor_time": {course.figure: statistics.median(course.processor) for course in courses},
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the figures."""
    arguments = parse_arguments(argv)
    with one_line_errors():
        if arguments.json:
            check_writable(arguments.json)
        courses = make_courses(arguments)
    for course in progress(courses, leave=False, unit=" environment"):
        course.prepare(arguments.seconds)
    for _ in progress(range(arguments.repeats), leave=False, unit=" round"):
        for course in courses:  # in turns: what disturbs the machine for a moment hits none alone
            course.measure()
    written = report(courses, arguments)
    here = written["machine"]
    title = (
        f"{arguments.id}, random play, {processor_of(here)}, {here['cores']} cores, {here['threads']} threads"
    )
    print(speed_table(courses, f"{title}, load {here['load_average']:.1f}"))
    if arguments.json:
        write_text(arguments.json, json.dumps(written, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    run(main)
