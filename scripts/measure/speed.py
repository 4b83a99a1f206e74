"""What is measured in rounds: something that plays on from one measurement to the next."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tetris.commands.command_line import positive_int, positive_seconds
from tetris.progress import progress

Play = Callable[[int], tuple[float, float, float]]
"""Plays so many steps; returns what was placed, the seconds by the clock and those of processor time."""


@dataclass
class Course:
    """One way to play that is measured.

    Attributes:
        name: What to call it.
        figure: Name of its figure.
        play: Plays on.
        warm_up: Steps before the clock starts, twice.
        steps: Steps of one measurement.
        speeds: Placements a second, one for each measurement.
        of_processor: Placements in a second of processor time, of all threads together; the same.
    """

    name: str
    figure: str
    play: Play
    warm_up: int
    steps: int = 1
    speeds: list[float] = field(default_factory=list)
    of_processor: list[float] = field(default_factory=list)

    def prepare(self, seconds: float) -> None:
        """Play to steady play, and find out how many steps take so many seconds."""
        self.play(self.warm_up)
        _, taken, _ = self.play(self.warm_up)
        self.steps = max(1, math.ceil(self.warm_up * seconds / taken))

    def measure(self) -> None:
        """Play one measurement."""
        placed, seconds, processor = self.play(self.steps)
        self.speeds.append(placed / seconds)
        self.of_processor.append(placed / max(processor, 1e-9))


def measure(courses: Sequence[Course], repeats: int, seconds: float) -> None:
    """Measure all of them, interleaved: what disturbs the machine for a moment then hits none alone."""
    with progress(total=len(courses) * (repeats + 1), leave=False, unit=" measurement") as bar:
        for course in courses:
            course.prepare(seconds)
            bar.update()
        for _ in range(repeats):
            for course in courses:
                course.measure()
                bar.update()


def median_and_range(values: Sequence[float]) -> tuple[float, float, float]:
    """Return median, least and most."""
    return statistics.median(values), min(values), max(values)


def add_length(parser: argparse.ArgumentParser) -> None:
    """Give a parser ``--repeats``, ``--seconds`` and ``--json``."""
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
