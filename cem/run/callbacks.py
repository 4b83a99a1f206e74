"""Callbacks of a training run: the hooks, a progress bar and a metrics file."""

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from cem.core.snapshot import GenerationRecord
from kernels.support.files import check_own, named_errors


@dataclass(frozen=True)
class RunPlan:
    """The plan of a run, which callbacks get in ``on_start``.

    The other fields are arguments of ``Trainer``.

    Attributes:
        generation: The number of generations before this run: 0, or that of the checkpoint
            from which the run resumes.
    """

    generation: int
    generations: int | None
    time_limit_s: float | None
    costs: Sequence[float] = ()


class Callback:
    """The hooks of a training run. Here they do nothing; subclasses override them."""

    on_every_rank = False
    """Whether every rank calls the hooks, or only rank 0. See ``cem.run.ranks``.

    If only rank 0 calls them and one raises ``Interrupted``, the search of all ranks ends after
    the next record.
    """

    def on_start(self, plan: RunPlan) -> None:
        """Called once, before the first generation."""

    def on_generation(self, record: GenerationRecord) -> None:
        """Called with every record. The optimizer may already be ahead, see ``Trainer``."""

    def on_checkpoint(self, generation: int, state: Mapping[str, Any]) -> None:
        """Called before a checkpoint is saved, to flush output of the generations so far.

        Args:
            generation: The number of generations so far.
            state: The ``CrossEntropyMethod.state_dict`` after this generation, which must not
                be modified. The optimizer may already be ahead.
        """

    def on_end(self) -> None:
        """Called once at the end, also after an error, if the callback was started."""


def as_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    """Return callbacks, or functions of a ``GenerationRecord``, as a tuple of callbacks.

    ``callbacks`` is one of them, or several.
    """
    if isinstance(callbacks, Callback) or callable(callbacks):
        callbacks = [callbacks]
    return tuple(map(_as_callback, callbacks))


def _as_callback(function: Callback | Callable[[GenerationRecord], Any]) -> Callback:
    """Return a callback, or make one that calls a function with every record."""
    if isinstance(function, Callback):
        return function
    callback = Callback()
    callback.on_generation = function  # type: ignore[method-assign, assignment]
    return callback


# A closed terminal raises OSError, a closed file ValueError.
_ignore_closed_output = contextlib.suppress(OSError, ValueError)


class ProgressBar(Callback):
    """Shows the generation, best fitness, elites' mean fitness, metrics and the time left.

    On a terminal it is a tqdm bar. In a log or on a dumb terminal it prints plain lines: one
    for the first generation, then one every ``interval_s`` seconds, and one for the last
    generation. A failing output, such as a closed terminal, does not end the run.
    """

    def __init__(
        self,
        metrics: Sequence[str] = (),
        *,
        interval_s: float = 10.0,
        file: TextIO | None = None,
        number: Callable[[float], str] = "{:.6g}".format,
    ) -> None:
        """Prepare the bar; ``on_start`` opens it.

        Args:
            metrics: The names of metrics to show. For example, the metric "lines/s" is shown as
                "12.3M lines/s".
            interval_s: The minimum time between two plain lines in a log, in seconds.
            file: The output. None: ``sys.stderr`` at the start of the run.
            number: A function that formats a fitness for the bar.
        """
        self._metrics = tuple(metrics)
        self._interval_s = interval_s
        self._file = file
        self._number = number
        self._bar: Any = None
        # The times of the last printed line and of the start of this generation. ``tick``
        # prints nothing while they are infinite: until ``on_start``, and always on ranks above
        # 0, whose ``on_start`` is not called.
        self._shown_at = math.inf
        self._generation_began_at = math.inf

    def on_start(self, plan: RunPlan) -> None:
        """Start the clock. If the output is a terminal, also open a tqdm bar.

        Without a bar, ``on_generation`` prints lines.
        """
        self._plan = plan
        self._generation = plan.generation
        self._first: GenerationRecord | None = None  # the first record of this run
        self._line = ""  # the newest line, until it is printed
        self._started_at = time.monotonic()
        self._generation_began_at = self._started_at
        # The first line is printed without a delay.
        self._shown_at = -math.inf
        self._bar = None

        file = self._file or sys.stderr
        is_terminal = False
        with _ignore_closed_output:
            # ``sys.stderr`` is None in a program without a console.
            is_terminal = file is not None and file.isatty()
        if is_terminal and os.environ.get("TERM") != "dumb":
            self._bar = tqdm(
                total=plan.generations,
                initial=plan.generation,
                file=file,
                dynamic_ncols=True,
                unit="generation",
                bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]",
            )

    def on_generation(self, record: GenerationRecord) -> None:
        """Advance the bar, or print a line if ``interval_s`` has passed since the last one."""
        # This record ends a generation, and the next generation begins now.
        self._generation = record.generation
        self._generation_began_at = time.monotonic()
        if self._first is None:
            self._first = record
        text = self._describe(record, self._first)
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            # ``update`` takes the number of generations since its last call.
            self._bar.update(record.generation - self._bar.n)
            return
        # If it is too early to print the line, ``tick`` or ``on_end`` may print it later.
        self._line = f"generation {record.generation}{self._of_total()}, {text}"
        if self._generation_began_at - self._shown_at >= self._interval_s:
            self._show_line()

    def _describe(self, record: GenerationRecord, first: GenerationRecord) -> str:
        """Return the fitness and the metrics of a record, and the time left, if it is known.

        ``first`` is the first record of the run.
        """
        parts = [
            f"best {self._number(record.generation_best)}",
            f"elites {self._number(record.elite_mean)}",
        ]
        for name in self._metrics:
            if name in record.metrics:
                parts.append(f"{tqdm.format_sizeof(record.metrics[name])} {name}")
        seconds_left = self._seconds_left(record, first)
        if seconds_left < math.inf:
            parts.append(f"{tqdm.format_interval(max(0.0, seconds_left))} left")
        return ", ".join(parts)

    def tick(self) -> None:
        """Print a line in a log if one is due. A long generation may call this repeatedly."""
        now = time.monotonic()
        last = max(self._shown_at, self._generation_began_at)
        if self._bar is None and now - last >= self._interval_s:
            # The line of the last record may have been held back until now.
            self._show_line()
            seconds = f"{now - self._generation_began_at:.0f} s so far"
            number = f"{self._generation + 1}{self._of_total()}"
            self._line = f"generation {number} goes on, {seconds}"
            self._show_line()

    def on_end(self) -> None:
        """Close the bar in its last state, or print the last line."""
        if self._bar is not None:
            self._bar.close()
        self._show_line()

    def _of_total(self) -> str:
        """Return, for example, "/100" for a run of 100 generations; "" if it has no end."""
        return "" if self._plan.generations is None else f"/{self._plan.generations}"

    def _show_line(self) -> None:
        """Print the newest line, unless it is printed already."""
        if self._line:
            with _ignore_closed_output:
                print(self._line, file=self._file or sys.stderr, flush=True)
            self._line = ""
            self._shown_at = time.monotonic()

    def _seconds_left(self, record: GenerationRecord, first: GenerationRecord) -> float:
        """Return an estimate of the seconds that the run has left; infinity if unknown.

        The run ends with the last generation or at the time limit. The estimate uses the
        generations after the first record only, because the first record includes costs that
        occur once in a process.
        """
        plan = self._plan
        seconds = math.inf
        if plan.generations is not None and record.generation > first.generation:
            costs = plan.costs or (1.0,) * plan.generations
            done = sum(costs[first.generation : record.generation])
            to_do = sum(costs[record.generation :])
            # If these generations cost nothing, NaN: the time left is not shown.
            seconds = to_do * (record.elapsed_s - first.elapsed_s) / (done or math.nan)
        if plan.time_limit_s is not None:
            # If the second number is NaN, `min` returns the first one.
            seconds = min(plan.time_limit_s - (time.monotonic() - self._started_at), seconds)
        return seconds


class MetricsWriter(Callback):
    """Writes ``metrics.jsonl``: one JSON object per recorded generation, flushed at once.

    The names are those of ``GenerationRecord`` and of the objective's metrics. NaN and
    infinities become null. When a run starts at generation g, the lines of later generations
    and an incomplete last line are removed. So a resumed run has one line per record, and a new
    run starts with an empty file.
    """

    def __init__(self, path: str | Path, *, distribution: bool = False) -> None:
        """Prepare the writer; ``on_start`` opens the file, whose folder must exist.

        Args:
            path: The file.
            distribution: Whether each line also has ``mean`` and ``std``, lists of dim numbers,
                and ``unbounded_mean`` if a smooth map transforms the mean into bounds.
        """
        self.path = Path(path)
        self._distribution = distribution
        self._file: Any = None

    def restore(self, generation: int) -> list[dict[str, Any]]:
        """Remove the lines after a generation, and return the remaining lines as dicts.

        An incomplete last line is removed, too. If the file does not exist, it is created.

        Raises:
            ValueError: If a remaining line is not a JSON object with a generation.
        """
        # Raise an error if another user has put a link or a pipe here.
        check_own(self.path)
        rows: list[dict[str, Any]] = []
        size = 0  # the size of the remaining lines, in bytes
        with self.path.open("a+b") as file:
            # A file opened for appending is positioned at its end.
            file.seek(0)
            for line in file:
                is_complete = line.endswith(b"\n")
                if not is_complete:
                    break
                try:
                    row = json.loads(line)
                    is_later = row["generation"] > generation
                except (KeyError, TypeError, ValueError, RecursionError) as error:
                    message = f"{self.path}: line {len(rows) + 1} is damaged: {error}"
                    raise ValueError(message) from error
                if is_later:
                    break
                rows.append(row)
                size += len(line)
            file.truncate(size)
        return rows

    def on_start(self, plan: RunPlan) -> None:
        """Open the file, and remove the lines that the run will write again."""
        self.restore(plan.generation)
        self._file = self.path.open("ab", buffering=0)

    def on_generation(self, record: GenerationRecord) -> None:
        """Append the record to the file as a line of JSON.

        Raises:
            ValueError: If a metric is named "mean" or "std", and the writer also writes the
                mean and std of the distribution.
        """
        row: dict[str, Any] = dict(record.as_dict())
        # JSON has no NaN and no infinities.
        for name, value in row.items():
            if not math.isfinite(value):
                row[name] = None
        if self._distribution:
            clash = row.keys() & {"mean", "std"}
            if clash:
                names = ", ".join(clash)
                raise ValueError(f"expected metrics under names of their own, got {names}")
            row["mean"] = record.mean.tolist()
            row["std"] = record.std.tolist()
            if record.box:
                row["unbounded_mean"] = record.unbounded_mean.tolist()
        unwritten = json.dumps(row).encode() + b"\n"
        with named_errors(self.path):
            # The file is unbuffered: ``write`` may write only a part of the line.
            while unwritten:
                written = self._file.write(unwritten)
                unwritten = unwritten[written:]

    def on_checkpoint(self, generation: int, state: Mapping[str, Any]) -> None:
        """Wait until the lines are on the disk, since a checkpoint must not outlive them."""
        with named_errors(self.path):
            os.fsync(self._file.fileno())

    def on_end(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
