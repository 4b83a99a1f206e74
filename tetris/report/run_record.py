"""Read the folder of a training run: recipe, a record a generation, the controller, its scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from kernels.files import read_bytes
from tetris import LinearController
from tetris.training.recipe import Recipe
from tetris.training.run_folder import RunFolder

MOST_BYTES = 1 << 30
"""The most bytes of a run's metrics: some million generations."""

Metrics = dict[str, Any]
"""A line of ``metrics.jsonl``."""

_NUMBERS = (
    "generation",
    *("stage", "board_width", "board_height"),
    "seconds",
    "elapsed_s",
    "lines",
    "decisions",
)
_FIGURES = ("best_fitness", "generation_best", "elite_mean", "std_mean", "learned_mean_fitness")
_RENAMED = {"mean_fitness": "learned_mean_fitness", "elite_worst": "elite_threshold"}
"""Older names of a record's fields, and the names of today."""
_GREATEST = 1e300  # refuses NaN and infinities, too
_SCORED = ("controller", "board", "rule", "pieces", "lines_per_game", "ci95", "games", "lines", "decisions")
_ESTIMATED = ("controller", "board", "rule", "pieces", "lines_per_game", "ci95", "estimates", "decisions")


@dataclass(frozen=True)
class RunRecord:
    """The content of the folder of a run.

    Attributes:
        name: Label of the run.
        recipe: Its recipe.
        metrics: A record a generation, at least one.
        controller: The learned controller, with its provenance.
    """

    name: str
    recipe: Recipe
    metrics: list[Metrics]
    controller: LinearController

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
    def spread(self) -> list[float] | None:
        """The last standard deviation of every weight; None if an older run did not record it."""
        return self.metrics[-1].get("std")


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


def read_run(path: Path) -> RunRecord:
    """Read the folder of a run, finished or in progress.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If it is no run, has no generation, or a file is damaged; the message names it.
    """
    folder = RunFolder(path)
    recipe = folder.recipe()
    metrics = read_metrics(folder.metrics) if folder.metrics.is_file() else []
    if not metrics or not folder.controller.is_file():
        raise ValueError(f"expected a run of at least one generation in {path}, found none over yet")
    controller = LinearController.load(folder.controller)
    _check_weights(folder.metrics, metrics, len(controller.weights))
    for kind, known in (("score", _SCORED), ("estimates", _ESTIMATED)):
        _check_scores(folder.controller, kind, controller.provenance.get(kind), known)
    return RunRecord(path.resolve().name, recipe, metrics, controller)


def read_metrics(path: Path) -> list[Metrics]:
    """Read a metrics file; an incomplete last line, of a run in progress, is left out.

    Raises:
        OSError: If it cannot be read.
        ValueError: If a line is no record of a generation of Tetris; the message names file and line.
    """
    records = []
    try:
        content = read_bytes(path, MOST_BYTES)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    whole, _, _ = content.decode(errors="replace").rpartition("\n")
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            record = read_record(line)
            _check_record(record)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: line {number}: {error}") from error
        records.append(record)
    return records


def read_record(line: str) -> Any:
    """Parse a line of a metrics file; older names of fields are replaced by those of today."""
    record = json.loads(line)
    if not isinstance(record, dict):
        return record
    return {_RENAMED.get(name, name): value for name, value in record.items()}


def _check_record(record: Any) -> None:
    if not isinstance(record, dict):
        raise ValueError(f"expected an object, got {type(record).__name__}")
    for name in _NUMBERS:
        if not _is_number(record.get(name)):
            raise ValueError(f"expected {name} to be a number, got {record.get(name)!r}")
    for name in (*_FIGURES, "elite_threshold"):
        value = record.get(name)
        if (name not in record and name in _FIGURES) or not (value is None or _is_number(value)):
            raise ValueError(f"expected {name} to be a number or null, got {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _GREATEST


def _check_weights(path: Path, metrics: Sequence[Metrics], count: int) -> None:
    for number, record in enumerate(metrics, start=1):
        for name in ("mean", "std"):
            vector = record.get(name, [0.0] * count)  # older runs recorded none
            if not (isinstance(vector, list) and len(vector) == count and all(map(_is_number, vector))):
                raise ValueError(f"{path}: line {number}: expected {name} to be {count} numbers")


def _check_scores(path: Path, kind: str, scores: object, known: Sequence[str]) -> None:
    if scores is None:
        return
    if not isinstance(scores, list):
        raise ValueError(f"{path}: expected the {kind} to be a list, got {type(scores).__name__}")
    for score in scores:
        missing = [name for name in known if not isinstance(score, dict) or name not in score]
        if missing:
            raise ValueError(f"{path}: expected a score with {', '.join(missing)}, got {score!r}")
