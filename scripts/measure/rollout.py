"""Measure how fast the engines play with good controllers, after a warm-up.

python scripts/measure rollout dt20 bcts --json rollout.json
"""

import argparse
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from kernels.support.progress import progress
from measure.provenance import Measured
from tetris import LinearController, Rollout, Rules, Streams, resolve
from tetris.commands.command_line import fail, one_line_errors

SEED = 12345


class SpeedTest(NamedTuple):
    """A speed test.

    Attributes:
        figure: The name of its figure, the speed, in the results.
        play: Plays a number of steps, waits for the device, and returns the number of
            placements. A test of a search runs generations instead.
        warm_up: The number of steps before the measurement. They are played twice.
        inverse: Whether the result is in microseconds per placement instead of placements per
            second.
    """

    figure: str
    play: Callable[[int], int]
    warm_up: int
    inverse: bool = False


def measure_speeds(
    speed_tests: Sequence[SpeedTest], repeats: int, seconds: float, **data: Any
) -> Measured:
    """Run speed tests in interleaved rounds, and return the median speed of each.

    In each round every test plays for a short time, so that a disturbance of the machine slows
    all of them down.

    Args:
        speed_tests: The speed tests.
        repeats: The number of rounds.
        seconds: About how long a test plays in a round.
        data: Other details of the result.

    Returns:
        The figures are the median speeds, in placements per second, or in microseconds per
        placement if the test is ``inverse``. The details have the ranges of the speeds, and the
        median placements per second of processor time. Processor time is summed over all
        threads.
    """
    # `_warm_up` returns how many steps a test makes in the given time.
    steps_per_round = [_warm_up(speed_test, seconds) for speed_test in speed_tests]
    speeds: dict[str, list[float]] = defaultdict(list)
    processor_speeds: dict[str, list[float]] = defaultdict(list)
    for _ in progress(range(repeats), unit=" round"):
        for speed_test, steps in zip(speed_tests, steps_per_round, strict=True):
            speed, processor_speed = _time(speed_test, steps)
            speeds[speed_test.figure].append(speed)
            processor_speeds[speed_test.figure].append(processor_speed)
    ranges = {figure: [min(values), max(values)] for figure, values in speeds.items()}
    details = {
        **data,
        "repeats": repeats,
        "seconds": seconds,
        "ranges": ranges,
        "of_processor_time": _medians(processor_speeds),
    }
    return Measured(_medians(speeds), details)


def _time(speed_test: SpeedTest, steps: int) -> tuple[float, float]:
    """Return the speed of a test, and its placements per second of processor time."""
    start_time = time.perf_counter()
    processor_start = time.process_time()
    placements = speed_test.play(steps)
    speed = placements / (time.perf_counter() - start_time)
    # The clock of processor time is coarse: after a short play it may read 0.
    processor_seconds = max(time.process_time() - processor_start, 1e-9)
    if speed_test.inverse:
        speed = 1e6 / speed
    return speed, placements / processor_seconds


def _medians(values: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(speeds) for name, speeds in values.items()}


def _warm_up(speed_test: SpeedTest, seconds: float) -> int:
    """Warm a speed test up, and return how many of its steps take about ``seconds``."""
    speed_test.play(speed_test.warm_up)
    start_time = time.perf_counter()
    speed_test.play(speed_test.warm_up)
    return max(1, math.ceil(speed_test.warm_up * seconds / (time.perf_counter() - start_time)))


class Engine(NamedTuple):
    """An engine, and how many games it plays side by side.

    Attributes:
        figure: The name of its speed in the results. {task} stands for feature set and board.
        device: The device of the engine.
        streams: The number of games side by side.
        warm_up: The number of decisions in each game after which boards are no longer empty.
        threads: The number of torch's threads. None is torch's default.
        task: The only feature set and board that are measured. None stands for all.
    """

    figure: str
    device: str
    streams: int
    warm_up: int = 1000
    threads: int | None = None
    task: str | None = None


ENGINES = (
    Engine("rollout.python.{task}.decisions_per_second", "python", 4, 100),
    Engine("rollout.cpu.{task}.decisions_per_second_per_core", "cpu", 64, threads=1),
    Engine("rollout.cpu.{task}.decisions_per_second_all", "cpu", 64),
    # Training with splitting plays this number of streams on an H100 or H200.
    Engine("rollout.cuda.{task}.decisions_per_second", "cuda", 132 * 4096),
    Engine("rollout.cuda.single_game.us_per_decision", "cuda", 1, task="dt.10x20"),
)
"""The engines, from slow to fast. If one works on a machine, all before it work, too."""


def make_speed_test(
    engine: Engine, controller: LinearController, rules: Rules, task: str
) -> SpeedTest:
    """Return a speed test of a game engine that plays with a controller.

    The result is in decisions per second. An engine with a task of its own (``engine.task``)
    plays a single game, and its result is in microseconds per decision.

    Args:
        engine: The engine.
        controller: The controller that chooses every placement.
        rules: The rules of the games.
        task: The feature set and the board, such as "dt.10x20". It is a part of the result's
            name.
    """
    streams = Streams(rules, engine.streams, seed=SEED)
    rollout = Rollout(controller.policy(), streams, engine.device)

    def play(decisions: int) -> int:
        """Make a number of decisions in each game, and return the number in all games."""
        usual_threads = torch.get_num_threads()
        # An engine with `threads` None uses as many as usual.
        torch.set_num_threads(engine.threads or usual_threads)
        result = rollout.advance(decisions)
        int(result.lines.sum())  # `int` waits until the device has finished.
        torch.set_num_threads(usual_threads)
        return decisions * engine.streams

    figure = engine.figure.format(task=task)
    return SpeedTest(figure, play, engine.warm_up, inverse=engine.task is not None)


def _choose_devices(option: str, fastest: str) -> list[str]:
    """Return the device of the option, or with "auto" all devices up to the fastest one."""
    if option != "auto":
        return [option]
    # `ENGINES` are sorted from slow to fast. If one works on a machine, all engines before it
    # work there, too.
    devices = [engine.device for engine in ENGINES]
    return devices[: devices.index(fastest) + 1]


def _speed_tests_of(
    controller: LinearController, rules: Rules, devices: Sequence[str]
) -> list[SpeedTest]:
    """Return a speed test of the controller on each engine of the devices."""
    # The task is to play with this feature set on this board.
    task = f"{controller.features}.{rules.board}"
    return [
        make_speed_test(engine, controller, rules, task)
        for engine in ENGINES
        # An engine whose task is None can play every task.
        if engine.task in (None, task) and engine.device in devices
    ]


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Measure how fast the game engines play on a board with each of the controllers.

    No two controllers may have the same feature set, because the figures are named after it.

    Args:
        arguments: The options of the command. Their device may be "auto", which stands for all
            devices on which an engine works on this machine.
        device: With "auto", the fastest device that works here.
    """
    devices = _choose_devices(arguments.device, device)
    speed_tests = []
    names_of_features = {}  # Keyed by the name of the controller.
    with one_line_errors():
        rules = Rules(*Rules.parse_board(arguments.board))
        controllers = [resolve(text) for text in arguments.controllers]
        feature_sets = {controller.features for controller in controllers}
        if len(feature_sets) < len(controllers):
            got = " ".join(arguments.controllers)
            fail(f"expected controllers of different feature sets, got {got}")
        for controller in controllers:
            names_of_features[controller.name] = list(controller.names_on(rules))
            speed_tests += _speed_tests_of(controller, rules, devices)
    return measure_speeds(
        speed_tests,
        arguments.repeats,
        arguments.seconds,
        board=rules.board,
        controllers=names_of_features,
    )
