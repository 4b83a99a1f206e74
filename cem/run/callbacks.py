"""Callbacks of a training run: the hooks, a progress bar and a metrics file."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from cem.core.snapshot import GenerationRecord
from kernels.support.files import check_own, named_errors


@dataclass(frozen=True)
class RunPlan:
    """The plan of a run, given to the callbacks once; its fields are arguments of ``Trainer``.

    Attributes:
        generation: The generations before this run: 0, or those of the checkpoint it resumes.
    """

    generation: int
    generations: int | None
    time_limit_s: float | None
    costs: Sequence[float] = ()


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

        The state is that of ``CrossEntropyMethod.state_dict`` after so many generations, not to be changed;
        the optimizer may be ahead.
        """

    def on_end(self) -> None:
        """Called once at the end for every callback that was started, after an error, too."""


def as_callbacks(callbacks: Iterable[Any]) -> tuple[Callback, ...]:
    """Return callbacks, or functions of a ``GenerationRecord``, as a tuple of callbacks."""
    return tuple(each if isinstance(each, Callback) else _of_function(each) for each in callbacks)


def _of_function(function: Callable[[GenerationRecord], Any]) -> Callback:
    callback = Callback()
    callback.on_generation = function  # type: ignore[method-assign, assignment]
    return callback


_closed = contextlib.suppress(OSError, ValueError)  # what a closed output raises: that of the system, a file


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
        """Set up.

        Args:
            metrics: Names of metrics of the objective to show, such as rates: "12.3M lines/s" for "lines/s".
            interval_s: The least time between two plain lines in a log, in seconds.
            file: The output; None: ``sys.stderr`` at the start of the run.
            number: Formats a fitness.
        """
        self._metrics, self._interval_s, self._file, self._number = tuple(metrics), interval_s, file, number
        self._bar: Any = None
        self._shown = self._began = math.inf  # not before a start, which ranks above 0 have none of

    def on_start(self, plan: RunPlan) -> None:
        """Open the bar on a terminal."""
        self._plan, self._generation = plan, plan.generation
        self._first: GenerationRecord | None = None  # of the run
        self._line = ""  # the newest one, not shown yet
        self._started = self._began = time.monotonic()
        self._shown, self._bar = -math.inf, None
        file, is_terminal = self._file or sys.stderr, False
        with _closed:
            is_terminal = file is not None and file.isatty()  # a program without a console has no stderr
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
        """Advance the bar, or print a line when one is due."""
        self._generation, self._began = record.generation, time.monotonic()
        self._first = self._first or record
        shown = [f"best {self._number(record.generation_best)}", f"elites {self._number(record.elite_mean)}"]
        metrics = {name: record.metrics[name] for name in self._metrics if name in record.metrics}
        shown += [f"{tqdm.format_sizeof(value)} {name}" for name, value in metrics.items()]
        left = self._seconds_left(record, self._first)
        if left < math.inf:
            shown.append(f"{tqdm.format_interval(max(0.0, left))} left")
        if self._bar is not None:
            self._bar.set_postfix_str(", ".join(shown), refresh=False)
            self._bar.update(record.generation - self._bar.n)
            return
        self._line = ", ".join([f"generation {record.generation}{self._total()}", *shown])
        if self._began - self._shown >= self._interval_s:
            self._show_line()

    def tick(self) -> None:
        """Print a line in a log if one is due; an objective may call it during a long generation."""
        now = time.monotonic()
        if self._bar is None and now - max(self._shown, self._began) >= self._interval_s:
            self._show_line()
            seconds = f"{now - self._began:.0f} s so far"
            self._line = f"generation {self._generation + 1}{self._total()} goes on, {seconds}"
            self._show_line()

    def on_end(self) -> None:
        """Show the last state of the bar, or the last line."""
        if self._bar is not None:
            self._bar.close()
        self._show_line()

    def _total(self) -> str:
        return "" if self._plan.generations is None else f"/{self._plan.generations}"

    def _show_line(self) -> None:
        if self._line:
            with _closed:
                print(self._line, file=self._file or sys.stderr, flush=True)
            self._line, self._shown = "", time.monotonic()

    def _seconds_left(self, record: GenerationRecord, first: GenerationRecord) -> float:
        """Return the seconds to the nearer end; the first record includes one-time costs of the process."""
        plan, left = self._plan, math.inf
        if plan.generations is not None and record.generation > first.generation:
            costs = plan.costs or (1.0,) * plan.generations
            done = sum(costs[first.generation : record.generation])
            left = sum(costs[record.generation :]) * (record.elapsed_s - first.elapsed_s) / done
        if plan.time_limit_s is not None:
            left = min(left, plan.time_limit_s - (time.monotonic() - self._started))
        return left


class MetricsWriter(Callback):
    """Writes ``metrics.jsonl``: one JSON object per recorded generation, flushed at once.

    The names are those of ``GenerationRecord`` and of the metrics of the objective. NaN and infinities become
    null. When a run starts at generation g, the lines after g and a torn last line are removed: after a
    resumption every generation is there once, and a new run starts with an empty file.
    """

    def __init__(self, path: str | Path, *, distribution: bool = False) -> None:
        """Set the file, opened when the run starts; its folder must exist then.

        With ``distribution`` each line ends with ``mean`` and ``std``, lists of dim numbers.
        """
        self.path = Path(path)
        self._distribution = distribution
        self._descriptor: Any = None

    def restore(self, generation: int) -> list[dict[str, Any]]:
        """Remove the lines after a generation and a torn last line; return the others, which are whole."""
        check_own(self.path)
        kept: list[dict[str, Any]] = []
        size = 0
        with self.path.open("a+b") as file:
            file.seek(0)
            for line in file:
                try:
                    if not line.endswith(b"\n") or (values := json.loads(line))["generation"] > generation:
                        break
                except (KeyError, TypeError, ValueError, RecursionError) as error:
                    raise ValueError(f"{self.path}: line {len(kept) + 1} is damaged: {error}") from error
                kept.append(values)
                size += len(line)
            file.truncate(size)
        return kept

    def on_start(self, plan: RunPlan) -> None:
        """Open the file and remove the lines that the run writes again."""
        self.restore(plan.generation)
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def on_generation(self, record: GenerationRecord) -> None:
        """Append a line."""
        values: dict[str, Any] = {
            name: value if math.isfinite(value) else None for name, value in record.as_dict().items()
        }
        if self._distribution:
            if clash := values.keys() & {"mean", "std"}:
                raise ValueError(f"expected metrics under names of their own, got {', '.join(clash)}")
            values |= {"mean": record.mean.tolist(), "std": record.std.tolist()}
        line = json.dumps(values).encode() + b"\n"
        with named_errors(self.path):
            while line:
                line = line[os.write(self._descriptor, line) :]

    def on_checkpoint(self, generation: int, state: Mapping[str, Any]) -> None:
        """Wait until the lines are on the disk, so that no checkpoint outlives its metrics."""
        with named_errors(self.path):
            os.fsync(self._descriptor)

    def on_end(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
