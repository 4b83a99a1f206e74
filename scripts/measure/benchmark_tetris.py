"""Measure how fast the engines play under good controllers, in steady play."""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from measure.provenance import Measured
from tetris import LinearController, Rollout, Rules, resolve
from tetris.commands.command_line import one_line_errors
from tetris.progress import progress

SEED = 12345
SINGLE_GAME, SINGLE_GAME_TASK = "rollout.cuda.single_game.us_per_decision", "dt.10x20"
"""A figure, and the only feature set and board on which it is measured."""


class Course(NamedTuple):
    """One way to play that is measured."""

    figure: str  # its name
    play: Callable[[int], int]  # plays steps, waits for the device, returns the placements
    warm_up: int  # steps before the clock starts, twice
    inverse: bool = False  # whether the figure is microseconds a placement, not placements a second


def measure_courses(courses: Sequence[Course], repeats: int, seconds: float, **data: Any) -> Measured:
    """Measure all of them, interleaved: what disturbs the machine for a moment then hits none alone.

    Returns:
        By figure the median; in the details the least and most, and placements in a second of the processor
        time of all threads.
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
    return {name: statistics.median(values) for name, values in speeds.items()}, {**data, **details}, {}


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
    portable: bool = False  # whether it is compiled for any processor


_CUDA_STREAMS = 132 * 4096  # as training by splitting has on an H100 or H200
_PER_CORE = "{task}.decisions_per_second_per_core"
ENGINES = (
    Engine("rollout.python.{task}.decisions_per_second", "python", 4, 100),
    Engine(f"rollout.portable.{_PER_CORE}", "cpu", 64, threads=1, portable=True),
    Engine(f"rollout.cpu.{_PER_CORE}", "cpu", 64, threads=1),
    Engine("rollout.cpu.{task}.decisions_per_second_all", "cpu", 64),
    Engine("rollout.cuda.{task}.decisions_per_second", "cuda", _CUDA_STREAMS),
    Engine(SINGLE_GAME, "cuda", 1),
)
"""Every engine there is, the slow ones first; one that is added here is measured, by its device."""


def make_course(engine: Engine, controller: LinearController, rules: Rules) -> Course:
    """Return an engine, compiled, under a controller."""
    games = (torch.tensor([controller.weights]), rules, engine.streams, SEED, engine.device)
    rollout = Rollout(*games, features=controller.features, portable=engine.portable)

    def play(decisions: int) -> int:
        before = torch.get_num_threads()
        torch.set_num_threads(engine.threads or before)
        int(rollout.advance(decisions).lines.sum())  # waits for the device
        torch.set_num_threads(before)
        return decisions * engine.streams

    figure = engine.figure.format(task=f"{controller.features}.{rules.board}")
    return Course(figure, play, engine.warm_up, inverse=engine.figure == SINGLE_GAME)


def choose_engines(requested: str, best: str) -> list[Engine]:
    """Return the engines to measure: all up to the best that works here, or those of one device."""
    # Where an engine works, the slower ones before it do too: CUDA is taken only where C++ compiles.
    slowest_first = [engine.device for engine in ENGINES]
    last = slowest_first.index(best)
    chosen = {*slowest_first[: last + 1]} if requested == "auto" else {requested}
    return [engine for engine in ENGINES if engine.device in chosen]


def make_courses(
    engines: Sequence[Engine], controllers: Sequence[LinearController], rules: Rules
) -> list[Course]:
    """Return every engine with every controller that it is measured with."""
    sets = [controller.features for controller in controllers]
    if len({*sets}) < len(sets):
        raise ValueError(f"expected controllers of different feature sets, got {', '.join(sets)}")
    return [
        make_course(engine, controller, rules)
        for controller in controllers
        for engine in engines
        if engine.figure != SINGLE_GAME or f"{controller.features}.{rules.board}" == SINGLE_GAME_TASK
    ]


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the speeds of the engines."""
    with one_line_errors():
        rules = Rules(*Rules.parse_board(arguments.board))
        controllers = [resolve(text) for text in arguments.controllers]
        names = {each.name: list(each.names_on(rules)) for each in controllers}
        courses = make_courses(choose_engines(arguments.device, device), controllers, rules)
    length = (arguments.repeats, arguments.seconds)
    return measure_courses(courses, *length, board=rules.board, controllers=names)
