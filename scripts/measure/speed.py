"""What is measured in rounds: something that plays on from one measurement to the next."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tetris.progress import progress


@dataclass
class Course:
    """One way to play that is measured."""

    figure: str  # its name
    play: Callable[[int], int]  # plays so many steps, waits for the device, and returns how much was placed
    warm_up: int  # steps before the clock starts, twice
    inverse: bool = False  # whether the figure is microseconds a placement, not placements a second
    steps: int = 1  # of one measurement
    speeds: list[float] = field(default_factory=list)  # placements a second, one for each measurement
    of_processor: list[float] = field(
        default_factory=list
    )  # the same a second of all threads' processor time

    def prepare(self, seconds: float) -> None:
        """Play to steady play, and find out how many steps take so many seconds."""
        self.play(self.warm_up)
        began = time.perf_counter()
        self.play(self.warm_up)
        self.steps = max(1, math.ceil(self.warm_up * seconds / (time.perf_counter() - began)))

    def measure(self) -> None:
        """Play one measurement."""
        began, processor = time.perf_counter(), time.process_time()
        placed = self.play(self.steps)
        self.speeds.append(placed / (time.perf_counter() - began))
        self.of_processor.append(placed / max(time.process_time() - processor, 1e-9))

    @property
    def values(self) -> list[float]:
        """The measurements in the unit of the figure."""
        return [1e6 / speed if self.inverse else speed for speed in self.speeds]


def measure_courses(
    courses: Sequence[Course], repeats: int, seconds: float
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Measure all of them, interleaved; by figure the median, and the least and most.

    What disturbs the machine for a moment then hits none alone.
    """
    with progress(total=len(courses) * (repeats + 1), leave=False, unit=" measurement") as bar:
        for repeat in range(repeats + 1):
            for course in courses:
                if repeat:
                    course.measure()
                else:
                    course.prepare(seconds)
                bar.update()
    return (
        {course.figure: statistics.median(course.values) for course in courses},
        {course.figure: [min(course.values), max(course.values)] for course in courses},
    )
