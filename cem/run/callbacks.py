"""Callbacks of a training run: the hooks, a progress bar and a metrics file."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from torch import Tensor
from tqdm import tqdm

from cem.core.checks import check_real, outside
from cem.run.metrics_file import keep_lines

_SMOOTHING = 0.3  # weight of the newest generation in the expected time


@dataclass(frozen=True)
class RunPlan:
    """The plan of a run, given to the callbacks once.

    Attributes:
        generation: The generations told before this run: 0, or those of the checkpoint it resumes.
        generations: The generations to be told in the end; None: no limit.
        time_limit_s: The time limit of this run, in seconds; None: no limit.
        costs: The relative cost of each generation; empty: all the same.
        record_every: The generations from one record to the next.
    """

    generation: int
    generations: int | None
    time_limit_s: float | None
    costs: Sequence[float] = ()
    record_every: int = 1


@dataclass(frozen=True)
class GenerationRecord:
    """The record of a generation that was told; see ``Trainer`` for when it is made.

    Attributes:
        generation: The generations told so far, 1 for the first.
        best_fitness: The best fitness of all generations.
        generation_best: The best fitness of this one.
        elite_mean: The mean fitness of its elites.
        elite_threshold: The fitness of its worst elite: no other candidate is fitter.
        std_mean: The mean of the new standard deviation over the dimensions.
        seconds: The wall time since the record before, in seconds: on the CPU from ``ask()`` to the
            statistics; on other devices from the completion of the generation recorded before (for the first
            one, of the work queued before it) to that of this one.
        elapsed_s: The sum of ``seconds`` over all generations, those before a resumption included.
        metrics: The metrics of the objective, by name.
        distribution: Mean and standard deviation of the new distribution, shape (..., dim), on the CPU, not
            to be changed; None if not recorded.
    """

    generation: int
    best_fitness: float
    generation_best: float
    elite_mean: float
    elite_threshold: float
    std_mean: float
    seconds: float
    elapsed_s: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    distribution: tuple[Tensor, Tensor] | None = field(default=None, compare=False, repr=False)

    def as_dict(self) -> dict[str, float]:
        """Return all numbers in one flat dict: the fields in the order above, then the metrics.

        Raises:
            ValueError: If a metric has the name of a field.
        """
        apart = ("metrics", "distribution")
        own = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in apart}
        clash = own.keys() & self.metrics.keys()
        if clash:
            raise ValueError(f"expected metrics under names of their own, got {', '.join(sorted(clash))}")
        return {**own, **self.metrics}


class Callback:
    """Hooks of a training run, to be overridden; all do nothing here."""

    on_every_rank = False
    """Whether every rank calls it; otherwise rank 0 alone. See ``cem.run.ranks``.

    Where rank 0 alone calls it, ``Interrupted`` ends the search of all ranks after the next record.
    """

    def on_start(self, plan: RunPlan) -> None:
        """Called once, before the first generation."""

    def on_generation(self, record: GenerationRecord) -> None:
        """Called with the record of each generation; the optimizer may be ahead, see ``Trainer``."""

    def on_checkpoint(self, generation: int, state: Mapping[str, Any]) -> None:
        """Called before a checkpoint is saved: flush what belongs to the generations up to it.

        Args:
            generation: The generations recorded, 1 for the first.
            state: The state of the optimizer after them, which is saved: see
                ``CrossEntropyMethod.state_dict``. Not to be changed. The optimizer may be ahead.
        """

    def on_end(self) -> None:
        """Called once at the end for every callback that was started, after an error, too."""


class _Function(Callback):
    """A function of a record, as a callback."""

    def __init__(self, function: Callable[[GenerationRecord], Any]) -> None:
        self.on_generation = function  # type: ignore[method-assign, assignment]


def check_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    """Return callbacks, or functions of a ``GenerationRecord``, as a tuple of callbacks.

    Raises:
        TypeError: If they are no sequence of them.
    """
    is_one = isinstance(callbacks, Callback) or not isinstance(callbacks, Sequence)
    if not is_one and all(isinstance(each, Callback) or callable(each) for each in callbacks):
        return tuple(each if isinstance(each, Callback) else _Function(each) for each in callbacks)
    given = callbacks if isinstance(callbacks, Sequence) else [callbacks]
    kinds = ", ".join(type(each).__name__ for each in given)
    raise TypeError(f"expected callbacks as a sequence of Callback, got {kinds}: see cem.Callback")


_CLOSED = (OSError, ValueError)  # what a closed output raises: that of the system, a file of Python


def _is_terminal(file: TextIO | None) -> bool:
    with contextlib.suppress(*_CLOSED):
        return file is not None and file.isatty()  # a program without a console has no stderr
    return False


class ProgressBar(Callback):
    """Shows generation, its best and elite mean fitness, rates and the time left on stderr.

    On a terminal it is a tqdm bar. Elsewhere, in a log or on a dumb terminal, it is a plain line for the
    first generation, then one every ``interval_s`` seconds, and the last. An output that fails, such as a
    terminal that was closed, does not end the run.
    """

    def __init__(
        self,
        metrics: Sequence[str] = (),
        *,
        interval_s: float = 10.0,
        file: TextIO | None = None,
        number: Callable[[float], str] = "{:.6g}".format,
    ) -> None:
        """Set up; nothing is shown yet.

        Args:
            metrics: Names of metrics of the objective to show, such as rates; shown as "12.3M lines/s" under
                the name "lines/s".
            interval_s: The least time between two plain lines in a log, in seconds, ``>= 0``.
            file: The output; None: ``sys.stderr`` at the start of the run.
            number: Formats a fitness.

        Raises:
            TypeError: If ``interval_s`` is no number.
            ValueError: If it is out of range.
        """
        self._metrics = tuple(metrics)
        self._interval_s = check_real("interval_s", interval_s, 0.0)
        self._file = file
        self._number = number
        self._plan = RunPlan(0, None, None)
        self._generation = 0
        self._started = self._shown = self._began = 0.0
        self._pace: float | None = None
        self._bar: Any = None
        self._pending = ""

    def on_start(self, plan: RunPlan) -> None:
        """Open the bar on a terminal."""
        self._plan, self._started, self._shown, self._pace = plan, time.monotonic(), -math.inf, None
        self._generation, self._began = plan.generation, self._started
        self._pending = ""
        file = self._out()
        if _is_terminal(file) and os.environ.get("TERM") != "dumb":
            self._bar = tqdm(
                total=plan.generations,
                initial=plan.generation,
                file=file,
                dynamic_ncols=True,
                unit="generation",
                bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]",
            )

    def on_generation(self, record: GenerationRecord) -> None:
        """Advance the bar, or print a line when one is due."""
        before, self._generation, self._began = self._generation, record.generation, time.monotonic()
        if before > self._plan.generation:  # the first record includes one-time costs of the process
            pace = record.seconds / self._cost(before, record.generation)
            self._pace = pace if self._pace is None else self._pace + _SMOOTHING * (pace - self._pace)
        text = self._text(record)
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(record.generation - self._bar.n)
            return
        total = "" if self._plan.generations is None else f"/{self._plan.generations}"
        self._pending = f"generation {record.generation}{total}, {text}"
        if time.monotonic() - self._shown >= self._interval_s:
            self._print_pending()

    def tick(self) -> None:
        """Print a line in a log if one is due; an objective may call it during a long generation."""
        now = time.monotonic()
        if self._bar is None and now - max(self._shown, self._began) >= self._interval_s:
            self._print_pending()
            total = "" if self._plan.generations is None else f"/{self._plan.generations}"
            text = f"generation {self._generation + 1}{total} goes on, {now - self._began:.0f} s so far"
            self._print(text)

    def on_end(self) -> None:
        """Show the last state of the bar, or the last line."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        self._print_pending()

    def _out(self) -> TextIO | None:
        return sys.stderr if self._file is None else self._file

    def _print_pending(self) -> None:
        if self._pending:
            self._print(self._pending)
            self._pending = ""

    def _print(self, text: str) -> None:
        file = self._out()
        if file is not None:
            with contextlib.suppress(*_CLOSED):
                print(text, file=file, flush=True)
        self._shown = time.monotonic()

    def _text(self, record: GenerationRecord) -> str:
        parts = [
            f"best {self._number(record.generation_best)}",
            f"elites {self._number(record.elite_mean)}",
        ]
        for name in self._metrics:
            if name in record.metrics:
                parts.append(f"{tqdm.format_sizeof(record.metrics[name])} {name}")
        left = self._seconds_left(record.generation)
        if left is not None:
            parts.append(f"{tqdm.format_interval(left)} left")
        return ", ".join(parts)

    def _seconds_left(self, generation: int) -> float | None:
        ends = []
        if self._plan.generations is not None and self._pace is not None:
            ends.append(self._cost(generation, self._plan.generations) * self._pace)
        if self._plan.time_limit_s is not None:
            ends.append(self._plan.time_limit_s - (time.monotonic() - self._started))
        return max(0.0, min(ends)) if ends else None

    def _cost(self, begin: int, end: int) -> float:
        """Return the relative cost of the generations ``begin`` to ``end - 1``, from 0."""
        return sum(self._plan.costs[begin:end]) if self._plan.costs else float(end - begin)


class MetricsWriter(Callback):
    """Writes ``metrics.jsonl``: one JSON object a generation, flushed at once.

    The names are those of ``GenerationRecord`` and of the metrics of the objective. NaN and infinities become
    null. When a run starts at generation g, the lines after g and a torn last line are removed: after a
    resumption every generation is there once, and a new run starts with an empty file. Of a damaged file the
    readable lines are kept, a warning names the others, and the old file stays as ``metrics.jsonl.damaged``.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        distribution: bool = False,
        check: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """Set the file; it is opened when the run starts.

        Args:
            path: The file; its folder must exist then.
            distribution: Whether each line ends with the new distribution: ``mean`` and ``std``, lists of dim
                numbers.
            check: Called with the record of each line that is there when a run goes on; ValueError tells that
                the line is damaged. None accepts all.
        """
        self.path = Path(path)
        self._distribution = distribution
        self._check = check
        self._restored: int | None = None
        self._descriptor: int | None = None

    def restore(self, generation: int) -> list[str]:
        """Remove the lines that a run from this generation writes again; `on_start` does it otherwise.

        Args:
            generation: The generations told before the run.

        Returns:
            What is wrong with the file, in sentences; `on_start` warns of it.

        Raises:
            OSError: If it cannot be read or written.
        """
        self._restored = generation
        return keep_lines(self.path, generation, self._check)

    def on_start(self, plan: RunPlan) -> None:
        """Open the file and remove the lines that the run writes again.

        Raises:
            OSError: If it cannot be read or written.
        """
        if self._restored != plan.generation:
            for problem in self.restore(plan.generation):
                warnings.warn(problem, RuntimeWarning, stacklevel=outside())
        self._restored = None
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def on_generation(self, record: GenerationRecord) -> None:
        """Append a line, atomically.

        Raises:
            OSError: If it cannot be written, with the path; the file then ends with the line before.
            ValueError: If a metric has the name of a field of the record, or of a part of the distribution.
        """
        assert self._descriptor is not None, "on_start opens the file"
        values: dict[str, Any] = {
            name: value if math.isfinite(value) else None for name, value in record.as_dict().items()
        }
        if self._distribution and record.distribution is not None:
            for name, vector in zip(("mean", "std"), record.distribution, strict=True):
                if name in values:
                    raise ValueError(f"expected metrics under names of their own, got {name}")
                values[name] = vector.tolist()  # finite: the search refuses anything else
        line = (json.dumps(values) + "\n").encode("utf-8")
        end = os.lseek(self._descriptor, 0, os.SEEK_END)
        try:
            written = 0
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError as error:
            os.ftruncate(self._descriptor, end)
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def on_checkpoint(self, generation: int, state: Mapping[str, Any]) -> None:
        """Wait until the lines are on the disk, so that no checkpoint outlives its metrics."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def on_end(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
