"""Read the folder of a training run: recipe, a record per generation, the controller, its scores."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from kernels.support.files import read_bytes
from kernels.support.printable import printable
from tetris import LinearController
from tetris.training.recipe import Recipe
from tetris.training.run_folder import RunFolder

MOST_BYTES = 1 << 30
"""The most bytes of a run's metrics: some million generations."""

Metrics = dict[str, Any]
"""A line of ``metrics.jsonl``."""

_NUMBERS = (
    "generation",
    "stage",
    "board_width",
    "board_height",
    "seconds",
    "elapsed_s",
    "lines",
    "decisions",
)
_FIGURES = (
    *("best_fitness", "generation_best", "elite_mean", "elite_threshold"),
    *("std_mean", "learned_mean_fitness"),
)
_GREATEST = 1e300  # refuses NaN and infinities, too
_SCORE_TEXTS = ("controller", "board", "rule", "pieces")
_SCORE_COUNTS = {"score": ("games", "lines", "decisions"), "estimates": ("estimates", "decisions")}


@dataclass(frozen=True)
class RunRecord:
    """The content of the folder of a run.

    Attributes:
        name: Label of the run.
        recipe: Its recipe.
        metrics: A record per generation, at least one.
        controller: The learned controller, with its provenance.
        starts: Hardware, commit and command of each start; see `tetris.training.provenance`.
    """

    name: str
    recipe: Recipe
    metrics: list[Metrics]
    controller: LinearController
    starts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def scores(self) -> list[dict[str, Any]]:
        """Played scores, as `Measurement.to_dict` returns them; empty before the end of training."""
        return list(self.controller.provenance.get("score") or [])

    @property
    def estimates(self) -> list[dict[str, Any]]:
        """Estimated scores, as `Estimate.to_dict` returns them; may be empty."""
        return list(self.controller.provenance.get("estimates") or [])

    @property
    def versions(self) -> dict[str, str]:
        """The versions of what computed."""
        return dict(self.controller.provenance.get("versions") or {})

    @property
    def generations(self) -> int:
        """The number of generations so far."""
        return len(self.metrics)

    @property
    def decisions(self) -> int:
        """The decisions of all generations so far."""
        return sum(record["decisions"] for record in self.metrics)

    @property
    def lines(self) -> int:
        """The lines that all candidates removed so far."""
        return sum(record["lines"] for record in self.metrics)

    @property
    def seconds(self) -> float:
        """The wall time of all generations so far, in seconds."""
        return float(self.metrics[-1]["elapsed_s"])

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features, in the order of the weights."""
        return self.controller.names_on(self.controller.rules)

    @property
    def spread(self) -> list[float]:
        """The last standard deviation of every weight."""
        return list(self.metrics[-1]["std"])

    def __repr__(self) -> str:
        """Return the run in a line: not its generations."""
        what = f"{self.recipe.title}, on {self.controller.rules.board}, {self.generations} generations"
        return f"<RunRecord {printable(self.name)}: {printable(what)}>"


def board(record: Metrics) -> str:
    """Return the board of a generation."""
    return f"{record['board_width']}x{record['board_height']}"


def stages_of(metrics: Sequence[Metrics]) -> list[tuple[str, int, int]]:
    """Return the stages that were played: board, first and last generation."""
    stages = []
    for (_, name), group in groupby(metrics, lambda record: (record["stage"], board(record))):
        played = [record["generation"] for record in group]
        stages.append((name, played[0], played[-1]))
    return stages


def load_run(path: str | os.PathLike[str]) -> RunRecord:
    """Read the folder of a run, finished or in progress.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If it is no run, has no generation, or a file is damaged; the message names it.
    """
    path = Path(path)
    folder = RunFolder(path)
    recipe = folder.recipe()
    metrics = read_metrics(folder.metrics)
    if not metrics:
        raise ValueError(f"expected a run of at least one generation in {path}, found none over yet")
    controller = read_controller(folder.controller)
    count = len(controller.weights)
    for number, record in enumerate(metrics, start=1):
        if not len(record["mean"]) == len(record["std"]) == count:
            raise ValueError(
                f"{folder.metrics}: line {number}: expected mean and std to be {count} numbers each"
            )
    return RunRecord(path.resolve().name, recipe, metrics, controller, read_starts(folder.starts))


def read_metrics(path: Path) -> list[Metrics]:
    """Read a metrics file; an incomplete last line, of a run in progress, is left out."""
    records = []
    for number, line in enumerate(_whole_lines(path), start=1):
        try:
            record = json.loads(line)
            _check(record, numbers=_NUMBERS, figures=_FIGURES, vectors=("mean", "std"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: line {number}: {error}") from error
        records.append(record)
    return records


def read_starts(path: Path) -> list[dict[str, Any]]:
    """Read the records of all starts, see `tetris.training.provenance`; a damaged line is left out."""
    starts = []
    for line in _whole_lines(path):
        with contextlib.suppress(ValueError, RecursionError):
            starts.append(json.loads(line))
    return [record for record in starts if isinstance(record, dict)]


def read_controller(path: Path) -> LinearController:
    """Read the controller of a run with the scores in its provenance."""
    controller = LinearController.load(path)
    provenance = controller.provenance
    try:
        for kind, counts in _SCORE_COUNTS.items():
            for score in provenance.get(kind) or ():
                low, high = score["ci95"]
                numbers = ("low", "pieces_known", *counts)
                known = {"pieces_known": 1, **score, "low": low, "high": high}
                _check(known, texts=_SCORE_TEXTS, numbers=numbers, figures=("high", "lines_per_game"))
                if "measured" in score:
                    _check(score["measured"], texts=("machine", "date", "commit"))
        dict(provenance.get("versions") or {})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: damaged provenance: {error}") from error
    return controller


def _whole_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    try:
        content = read_bytes(path, MOST_BYTES)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return content.decode(errors="replace").rpartition("\n")[0].splitlines()


def _check(
    record: Any,
    *,
    texts: Sequence[str] = (),
    numbers: Sequence[str] = (),
    figures: Sequence[str] = (),
    vectors: Sequence[str] = (),
) -> None:
    """Raise ValueError unless an object has these texts, numbers, numbers or nulls, and lists of numbers."""
    if not isinstance(record, dict):
        raise ValueError(f"expected an object, got {record!r}")
    for names, what, fits in (
        (texts, "a text", lambda value: isinstance(value, str)),
        (numbers, "a number", _is_number),
        (figures, "a number or null", lambda value: value is None or _is_number(value)),
        (vectors, "numbers", lambda value: isinstance(value, list) and all(map(_is_number, value))),
    ):
        for name in names:
            if not fits(record.get(name, "nothing")):
                raise ValueError(f"expected {name} to be {what}, got {record.get(name)!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _GREATEST
