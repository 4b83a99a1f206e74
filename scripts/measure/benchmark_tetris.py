"""Measure how fast the engines play under good controllers, in steady play.

python scripts/benchmark_tetris.py --json speed.json
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.files import check_writable
from measure.provenance import title, write_result
from measure.speed import Course, Play, add_length, measure, median_and_range
from tetris import LinearController, Rollout, Rules, resolve
from tetris.commands.arguments import DEFAULT_BOARD, add_board, add_device
from tetris.commands.command_line import Parser, one_line_errors, run
from tetris.devices import choose_device
from tetris.evaluation.scores import GPU_STREAMS
from tetris.evaluation.text_table import table

SEED = 12345
DEFAULT_CONTROLLERS = ("dt20", "bcts")
SINGLE_GAME = "cuda, single game"


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
    """

    name: str
    figure: str
    device: str
    streams: int
    warm_up: int = 1000
    threads: int | None = None
    portable: bool = False


_PER_CORE = "{task}.decisions_per_second_per_core"
ENGINES = (
    Engine("python", "rollout.python.{task}.decisions_per_second", "python", 4, 100),
    Engine("portable, one thread", f"rollout.portable.{_PER_CORE}", "cpu", 64, threads=1, portable=True),
    Engine("cpu, one thread", f"rollout.cpu.{_PER_CORE}", "cpu", 64, threads=1),
    Engine("cpu, all threads", "rollout.cpu.{task}.decisions_per_second_all", "cpu", 64),
    Engine("cuda", "rollout.cuda.{task}.decisions_per_second", "cuda", GPU_STREAMS),
    Engine(SINGLE_GAME, "rollout.cuda.single_game.us_per_decision", "cuda", 1),
)
"""Every engine there is, the slow ones first; one that is added here is measured, by its device."""

SINGLE_GAME_TASK = "dt.10x20"
"""The only feature set and board on which a single game is measured."""

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


def player(rollout: Rollout, engine: Engine) -> Play:
    """Return what plays decisions on each stream of a rollout, and waits for the device."""

    def play(decisions: int) -> tuple[float, float, float]:
        with threads(engine.threads):
            began, processor = time.perf_counter(), time.process_time()
            played = rollout.advance(decisions)
            int(played.lines.sum())  # waits for the device
            seconds, of_processor = time.perf_counter() - began, time.process_time() - processor
        return decisions * engine.streams, seconds, of_processor

    return play


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
    add_length(parser)
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
) -> list[tuple[str, Course]]:
    """Return every engine with every controller that it is measured with, compiled and ready.

    Returns:
        The name of the controller, and what is measured.

    Raises:
        BuildError: If an engine could not be built.
        ValueError: If a controller cannot play on the board, or two would have the same figure.
    """
    courses: list[tuple[str, Course]] = []
    for controller in controllers:
        controller.names_on(rules)
        task = f"{controller.features}.{rules.board}"
        for engine in engines:
            if engine.name == SINGLE_GAME and task != SINGLE_GAME_TASK:
                continue
            figure = engine.figure.format(task=task)
            if any(course.figure == figure for _, course in courses):
                raise ValueError(
                    f"expected controllers of different feature sets, got {controller.features} twice"
                )
            rollout = Rollout(
                torch.tensor([controller.weights], dtype=torch.float32),
                rules,
                engine.streams,
                SEED,
                engine.device,
                features=controller.features,
                portable=engine.portable,
            )
            course = Course(engine.name, figure, player(rollout, engine), engine.warm_up)
            courses.append((controller.name, course))
    return courses


def shown(course: Course) -> tuple[float, ...]:
    """Return median, least and most in the unit of the figure: of a single game microseconds a decision."""
    single = course.name == SINGLE_GAME
    return median_and_range([1e6 / speed if single else speed for speed in course.speeds])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the figures."""
    arguments = parse_arguments(argv)
    with one_line_errors():
        rules = Rules(*Rules.parse_board(arguments.board or DEFAULT_BOARD))
        controllers = [resolve(text) for text in arguments.controllers]
        if arguments.json:
            check_writable(arguments.json)
        courses = make_courses(choose_engines(arguments.device), controllers, rules)
    measure([course for _, course in courses], arguments.repeats, arguments.seconds)
    device = "cuda" if courses[-1][1].name.startswith("cuda") else "cpu"
    rows = []
    for label, course in courses:
        unit, digits = ("us/decision", 2) if course.name == SINGLE_GAME else ("decisions/s", 0)
        rows.append([label, course.name, *(f"{value:,.{digits}f}" for value in shown(course)), unit])
    header = ["controller", "engine", "median", "least", "most", "unit"]
    print(f"board {rules.board}, {title(device)}\n{table(header, rows)}")
    if arguments.json:
        data = {
            "board": rules.board,
            "controllers": {each.name: list(each.names_on(rules)) for each in controllers},
            "repeats": arguments.repeats,
            "seconds": arguments.seconds,
            "ranges": {course.figure: list(shown(course)[1:]) for _, course in courses},
        }
        figures = {course.figure: shown(course)[0] for _, course in courses}
        write_result(arguments.json, figures, data, device)
    return 0


if __name__ == "__main__":
    run(main)
