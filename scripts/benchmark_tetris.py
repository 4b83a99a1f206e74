"""Measure how fast the engines play under good controllers, in steady play.

python scripts/benchmark_tetris.py --json speed.json --plot speed.svg
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from _machine import gpu, machine, processor_of, source_digest
from _speed_plot import Speed, draw_speeds

from kernels.files import check_writable, write_text
from tetris import LinearController, Rollout, Rules, resolve
from tetris.commands.arguments import DEFAULT_BOARD, add_board, add_device
from tetris.commands.command_line import Parser, one_line_errors, positive_int, positive_seconds, run
from tetris.devices import choose_device
from tetris.evaluation.scores import GPU_STREAMS
from tetris.evaluation.text_table import table
from tetris.progress import progress
from tetris.report import PICTURE_SUFFIXES
from tetris.report.figures import check_picture
from tetris.versions import versions

SEED = 12345
DEFAULT_CONTROLLERS = ("dt20", "bcts")


@dataclass(frozen=True)
class Unit:
    """What a speed is stated in.

    Attributes:
        name: What to call it.
        value: Makes the figure from decisions a second.
        digits: Digits after the point in the table.
    """

    name: str
    value: Callable[[float], float]
    digits: int


DECISIONS_PER_SECOND = Unit("decisions/s", lambda speed: speed, 0)
MICROSECONDS = Unit("us/decision", lambda speed: 1e6 / speed, 2)


@dataclass(frozen=True)
class Engine:
    """A way to play that is measured.

    Attributes:
        name: What to call it.
        figure: Name of its figure, with ``{task}`` for feature set and board.
        device: The device of the rollout.
        streams: Games side by side.
        warm_up: Decisions on each stream before the clock starts, from empty boards to steady play.
        threads: Threads of torch; None: as many as it takes by itself.
        portable: Whether it is compiled for any processor.
        unit: What its figure is stated in.
        task: The only feature set and board that it is measured on, as in the figures' names; None: any.
    """

    name: str
    figure: str
    device: str
    streams: int
    warm_up: int
    threads: int | None = None
    portable: bool = False
    unit: Unit = DECISIONS_PER_SECOND
    task: str | None = None


ENGINES = (
    Engine("python", "rollout.python.{task}.decisions_per_second", "python", 4, 100),
    Engine(
        "portable, one thread",
        "rollout.portable.{task}.decisions_per_second_per_core",
        "cpu",
        64,
        1000,
        threads=1,
        portable=True,
    ),
    Engine("cpu, one thread", "rollout.cpu.{task}.decisions_per_second_per_core", "cpu", 64, 1000, threads=1),
    Engine("cpu, all threads", "rollout.cpu.{task}.decisions_per_second_all", "cpu", 64, 1000),
    Engine("cuda", "rollout.cuda.{task}.decisions_per_second", "cuda", GPU_STREAMS, 1000),
    Engine(
        "cuda, single game",
        "rollout.cuda.single_game.us_per_decision",
        "cuda",
        1,
        1000,
        unit=MICROSECONDS,
        task="dt.10x20",
    ),
)
"""Every engine there is, the slow ones first; one that is added here is measured, by its device."""

DEVICES = ("auto", *dict.fromkeys(engine.device for engine in ENGINES))


@dataclass
class Course:
    """An engine playing for one controller: games that go on from one measurement to the next.

    Attributes:
        engine: The engine.
        label: Name of the controller.
        figure: Name of the figure.
        rollout: The games.
        decisions: Decisions on each stream in one measurement.
        speeds: Decisions a second, one for each measurement.
    """

    engine: Engine
    label: str
    figure: str
    rollout: Rollout
    decisions: int = 1
    speeds: list[float] = field(default_factory=list)

    @property
    def values(self) -> list[float]:
        """The speeds in the engine's unit."""
        return [self.engine.unit.value(speed) for speed in self.speeds]

    def play(self, decisions: int) -> float:
        """Play on; return the decisions a second."""
        with threads(self.engine.threads):
            began = time.perf_counter()
            played = self.rollout.advance(decisions)
            int(played.lines.sum())  # waits for the device
            seconds = time.perf_counter() - began
        return decisions * self.engine.streams / seconds

    def prepare(self, seconds: float) -> None:
        """Play until the boards look as they do in long games, and find out how much is so many seconds."""
        self.play(self.engine.warm_up)
        speed = self.play(self.engine.warm_up)
        self.decisions = max(1, math.ceil(speed * seconds / self.engine.streams))

    def measure(self) -> None:
        """Play one measurement."""
        self.speeds.append(self.play(self.decisions))


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let torch use so many threads; None leaves it alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...] [CONTROLLER ...]")
    parser.add_argument(
        "controllers",
        nargs="*",
        metavar="CONTROLLER",
        default=DEFAULT_CONTROLLERS,
        help="by name, files or run folders, each of another feature set "
        f"(default: {' '.join(DEFAULT_CONTROLLERS)})",
    )
    add_board(parser)
    add_device(parser, DEVICES, what="engines, all with auto")
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
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help=f"draw them: {', '.join(PICTURE_SUFFIXES)} (needs matplotlib)",
    )
    return parser.parse_args(argv)


def choose_engines(requested: str) -> list[Engine]:
    """Return the engines to measure: all that can work here, or those of one device.

    Raises:
        BuildError: If an engine that was asked for by name needs a compiler and there is none.
        ValueError: If it needs a GPU and there is none.
    """
    best = choose_device(requested)
    # Where an engine works, the slower ones before it do too: CUDA is taken only where C++ compiles.
    chosen = DEVICES[: DEVICES.index(best) + 1] if requested == "auto" else (requested,)
    return [engine for engine in ENGINES if engine.device in chosen]


def make_courses(
    engines: Sequence[Engine], controllers: Sequence[LinearController], rules: Rules
) -> list[Course]:
    """Return every engine with every controller that it is measured with, compiled and ready.

    Raises:
        BuildError: If an engine could not be built.
        ValueError: If a controller cannot play on the board, or two would have the same figure.
    """
    courses: list[Course] = []
    for controller in controllers:
        controller.names_on(rules)
        task = f"{controller.features}.{rules.board}"
        for engine in engines:
            if engine.task not in (None, task):
                continue
            figure = engine.figure.format(task=task)
            if any(course.figure == figure for course in courses):
                raise ValueError(
                    f"expected controllers of different feature sets, got {controller.features} twice"
                )
            weights = torch.tensor([controller.weights], dtype=torch.float32)
            rollout = Rollout(
                weights,
                rules,
                engine.streams,
                SEED,
                engine.device,
                features=controller.features,
                portable=engine.portable,
            )
            courses.append(Course(engine, controller.name, figure, rollout))
    return courses


def measure(courses: Sequence[Course], repeats: int, seconds: float) -> None:
    """Measure all of them, in turns: what disturbs the machine for a moment then hits no engine alone."""
    with progress(total=len(courses) * (repeats + 1), leave=False, unit=" measurement") as bar:
        for course in courses:
            course.prepare(seconds)
            bar.update()
        for _ in range(repeats):
            for course in courses:
                course.measure()
                bar.update()


def speed_table(courses: Sequence[Course], rules: Rules) -> str:
    """Return the speeds side by side, each in its engine's unit."""
    rows = []
    for course in courses:
        unit, values = course.engine.unit, course.values
        shown = (statistics.median(values), min(values), max(values))
        rows.append(
            [course.label, course.engine.name, *(f"{value:,.{unit.digits}f}" for value in shown), unit.name]
        )
    header = ["controller", "engine", "median", "least", "most", "unit"]
    return f"{machine_title(courses, rules)}\n{table(header, rows)}"


def machine_title(courses: Sequence[Course], rules: Rules) -> str:
    """Return what the speeds hold for, in a line."""
    here = machine() | _gpu_of(courses)
    title = f"board {rules.board}, {processor_of(here)}, {here['cores']} cores, {here['threads']} threads"
    return f"{title}, {here['gpu']}" if "gpu" in here else title


def report(courses: Sequence[Course], rules: Rules, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the figures with all that they hold for, as plain values for JSON."""
    on_gpu = _gpu_of(courses)
    return {
        "benchmark": "tetris",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine() | on_gpu | {"load_average": os.getloadavg()[0]},
        "versions": versions(),
        "sources": source_digest("cpu", *(["cuda"] if on_gpu else [])),
        "board": rules.board,
        "controllers": {course.label: list(course.rollout.names) for course in courses},
        "repeats": arguments.repeats,
        "seconds": arguments.seconds,
        "figures": {course.figure: statistics.median(course.values) for course in courses},
        "ranges": {course.figure: [min(course.values), max(course.values)] for course in courses},
    }


def _gpu_of(courses: Sequence[Course]) -> dict[str, str | int | float]:
    return gpu() if any(course.engine.device == "cuda" for course in courses) else {}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the figures."""
    arguments = parse_arguments(argv)
    with one_line_errors():
        rules = Rules(*Rules.parse_board(arguments.board or DEFAULT_BOARD))
        controllers = [resolve(text) for text in arguments.controllers]
        if arguments.plot:
            check_picture(arguments.plot)
        for path in filter(None, (arguments.json, arguments.plot)):
            check_writable(path)
        courses = make_courses(choose_engines(arguments.device), controllers, rules)
    measure(courses, arguments.repeats, arguments.seconds)
    print(speed_table(courses, rules))
    if arguments.json:
        write_text(arguments.json, json.dumps(report(courses, rules, arguments), indent=1) + "\n")
    if arguments.plot:
        speeds = [Speed(course.engine.name, course.label, course.speeds) for course in courses]
        draw_speeds(speeds, arguments.plot, machine_title(courses, rules))
    return 0


if __name__ == "__main__":
    run(main)
