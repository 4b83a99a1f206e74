"""Measure how fast the engines play under good controllers, in steady play.

python scripts/benchmark_tetris.py --json speed.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure.cli import add_length, measurement
from measure.provenance import Measured
from measure.speed import Course, measure_courses
from tetris import LinearController, Rollout, Rules, resolve
from tetris.commands.arguments import DEFAULT_BOARD, add_board
from tetris.commands.command_line import one_line_errors, run
from tetris.evaluation.scores import GPU_STREAMS

SEED = 12345
SINGLE_GAME, SINGLE_GAME_TASK = "rollout.cuda.single_game.us_per_decision", "dt.10x20"
"""A figure, and the only feature set and board on which it is measured."""


@dataclass(frozen=True)
class Engine:
    """A way to play that is measured."""

    figure: str  # its name, with {task} for feature set and board
    device: str
    streams: int
    warm_up: int = 1000  # decisions on each stream before the clock starts, from empty boards to steady play
    threads: int | None = None  # of torch; None: as many as it takes by itself
    portable: bool = False  # whether it is compiled for any processor


_PER_CORE = "{task}.decisions_per_second_per_core"
ENGINES = (
    Engine("rollout.python.{task}.decisions_per_second", "python", 4, 100),
    Engine(f"rollout.portable.{_PER_CORE}", "cpu", 64, threads=1, portable=True),
    Engine(f"rollout.cpu.{_PER_CORE}", "cpu", 64, threads=1),
    Engine("rollout.cpu.{task}.decisions_per_second_all", "cpu", 64),
    Engine("rollout.cuda.{task}.decisions_per_second", "cuda", GPU_STREAMS),
    Engine(SINGLE_GAME, "cuda", 1),
)
"""Every engine there is, the slow ones first; one that is added here is measured, by its device."""

DEVICES = ("auto", *dict.fromkeys(engine.device for engine in ENGINES))


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let torch use so many threads; None leaves it alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def player(rollout: Rollout, engine: Engine) -> Callable[[int], int]:
    """Return what plays decisions on each stream of a rollout, and waits for the device."""

    def play(decisions: int) -> int:
        with threads(engine.threads):
            int(rollout.advance(decisions).lines.sum())
        return decisions * engine.streams

    return play


def choose_engines(requested: str, best: str) -> list[Engine]:
    """Return the engines to measure: all up to the best that works here, or those of one device."""
    # Where an engine works, the slower ones before it do too: CUDA is taken only where C++ compiles.
    chosen = DEVICES[: DEVICES.index(best) + 1] if requested == "auto" else (requested,)
    return [engine for engine in ENGINES if engine.device in chosen]


def make_courses(
    engines: Sequence[Engine], controllers: Sequence[LinearController], rules: Rules
) -> list[Course]:
    """Return every engine with every controller that it is measured with, compiled."""
    courses: list[Course] = []
    for controller in controllers:
        controller.names_on(rules)
        features = controller.features
        task, weights = f"{features}.{rules.board}", torch.tensor([controller.weights])
        for each in engines:
            if each.figure == SINGLE_GAME and task != SINGLE_GAME_TASK:
                continue
            figure = each.figure.format(task=task)
            if any(course.figure == figure for course in courses):
                raise ValueError(f"expected controllers of different feature sets, got {features} twice")
            games = (weights, rules, each.streams, SEED, each.device)
            rollout = Rollout(*games, features=features, portable=each.portable)
            courses.append(
                Course(figure, player(rollout, each), each.warm_up, inverse=each.figure == SINGLE_GAME)
            )
    return courses


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give a parser the controllers and the board."""
    names = "by name, files or run folders, each of another feature set (default: dt20 bcts)"
    parser.add_argument("controllers", nargs="*", default=("dt20", "bcts"), help=names)
    add_board(parser)
    add_length(parser)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the speeds of the engines."""
    with one_line_errors():
        rules = Rules(*Rules.parse_board(arguments.board or DEFAULT_BOARD))
        controllers = [resolve(text) for text in arguments.controllers]
        courses = make_courses(choose_engines(arguments.device, device), controllers, rules)
    figures, ranges = measure_courses(courses, arguments.repeats, arguments.seconds)
    data = {
        "board": rules.board,
        "controllers": {each.name: list(each.names_on(rules)) for each in controllers},
        "repeats": arguments.repeats,
        "seconds": arguments.seconds,
        "ranges": ranges,
    }
    return figures, data, {}


main = measurement(measure, __doc__, add_arguments, "[CONTROLLER ...]", DEVICES)

if __name__ == "__main__":
    run(main)
