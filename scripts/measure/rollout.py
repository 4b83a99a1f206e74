"""Measure how fast the engines play under good controllers, in steady play.

python scripts/measure rollout dt20 bcts --json rollout.json
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from kernels.support.progress import progress
from measure.provenance import Measured
from tetris import LinearController, Rollout, Rules, Streams, resolve
from tetris.commands.command_line import fail, one_line_errors

SEED = 12345


class Course(NamedTuple):
    """One way to play that is measured."""

    figure: str  # its name
    play: Callable[[int], int]  # plays steps, waits for the device, returns the placements
    warm_up: int  # steps before the clock starts, twice
    inverse: bool = False  # whether the figure is microseconds per placement, not placements per second


def measure_courses(courses: Sequence[Course], repeats: int, seconds: float, **data: Any) -> Measured:
    """Measure all of them, interleaved: what disturbs the machine for a moment then hits none alone.

    Figures are medians; the details have ranges, and placements per second of all threads' processor time.
    """
    steps = [_steps(course, seconds) for course in courses]
    speeds: dict[str, list[float]] = {course.figure: [] for course in courses}
    of_processor: dict[str, list[float]] = {course.figure: [] for course in courses}
    for _ in progress(range(repeats), leave=False, unit=" round"):
        for course, count in zip(courses, steps, strict=True):
            began, processor = time.perf_counter(), time.process_time()
            placed = course.play(count)
            speed = placed / (time.perf_counter() - began)
            speeds[course.figure].append(1e6 / speed if course.inverse else speed)
            of_processor[course.figure].append(placed / max(time.process_time() - processor, 1e-9))
    details = {
        "repeats": repeats,
        "seconds": seconds,
        "ranges": {name: [min(values), max(values)] for name, values in speeds.items()},
        "of_processor_time": {name: statistics.median(values) for name, values in of_processor.items()},
    }
    return Measured({name: statistics.median(x) for name, x in speeds.items()}, {**data, **details})


def _steps(course: Course, seconds: float) -> int:
    """Play to steady play; return the steps that take a number of seconds."""
    course.play(course.warm_up)
    began = time.perf_counter()
    course.play(course.warm_up)
    return max(1, math.ceil(course.warm_up * seconds / (time.perf_counter() - began)))


class Engine(NamedTuple):
    """A way to play that is measured."""

    figure: str  # its name, with {task} for feature set and board
    device: str
    streams: int
    warm_up: int = 1000  # decisions on each stream before the clock starts, from empty boards to steady play
    threads: int | None = None  # of torch; None: as many as it takes by itself
    task: str | None = None  # the only one for which it is measured


ENGINES = (
    Engine("rollout.python.{task}.decisions_per_second", "python", 4, 100),
    Engine("rollout.cpu.{task}.decisions_per_second_per_core", "cpu", 64, threads=1),
    Engine("rollout.cpu.{task}.decisions_per_second_all", "cpu", 64),
    # As many streams as training by splitting has on an H100 or H200.
    Engine("rollout.cuda.{task}.decisions_per_second", "cuda", 132 * 4096),
    Engine("rollout.cuda.single_game.us_per_decision", "cuda", 1, task="dt.10x20"),
)
"""Every engine there is, the slow ones first: where one works, those before it do, too."""


def make_course(engine: Engine, controller: LinearController, rules: Rules, task: str) -> Course:
    """Return an engine, compiled, under a controller."""
    streams = Streams(rules, engine.streams, SEED)
    rollout = Rollout(controller.policy(), streams, engine.device)

    def play(decisions: int) -> int:
        before = torch.get_num_threads()
        torch.set_num_threads(engine.threads or before)
        int(rollout.advance(decisions).lines.sum())  # waits for the device
        torch.set_num_threads(before)
        return decisions * engine.streams

    return Course(engine.figure.format(task=task), play, engine.warm_up, inverse=engine.task is not None)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the speeds of all engines up to the best that works here, or of those of one device."""
    devices = [engine.device for engine in ENGINES]
    chosen = devices[: devices.index(device) + 1] if arguments.device == "auto" else [arguments.device]
    with one_line_errors():
        rules = Rules(*Rules.parse_board(arguments.board))
        controllers = [resolve(text) for text in arguments.controllers]
        if len({each.features for each in controllers}) < len(controllers):
            fail(f"expected controllers of different feature sets, got {' '.join(arguments.controllers)}")
        names = {each.name: list(each.names_on(rules)) for each in controllers}
        courses = [
            make_course(engine, each, rules, task)
            for each in controllers
            for task in [f"{each.features}.{rules.board}"]
            for engine in ENGINES
            if engine.device in chosen and engine.task in (None, task)
        ]
    length = (arguments.repeats, arguments.seconds)
    return measure_courses(courses, *length, board=rules.board, controllers=names)
