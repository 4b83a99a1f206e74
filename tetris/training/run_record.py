"""Read the folder of a training run: recipe, a record a generation, the controller, its scores."""

from __future__ import annotations

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
from tetris.training.start_record import read_starts

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
_FIGURES = (
    *("best_fitness", "generation_best", "elite_mean", "elite_threshold"),
    *("std_mean", "learned_mean_fitness"),
)
_GREATEST = 1e300  # refuses NaN and infinities, too
_SCORE_TEXTS = ("controller", "board", "rule", "pieces")
_SCORE_COUNTS = {"score": ("games", "lines", "decisions"), "estimates": ("estimates", "decisions")}
_MEASURED = ("machine", "date", "commit")


@dataclass(frozen=True)
class RunRecord:
    """The content of the folder of a run.

    Attributes:
        name: Label of the run.
        recipe: Its recipe.
        metrics: A record a generation, at least one.
        controller: The learned controller, with its provenance.
        starts: Hardware, commit and command of each start; see `start_record`.
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
    metrics = read_metrics(folder.metrics) if folder.metrics.is_file() else []
    if metrics and not folder.controller.is_file():
        raise ValueError(
            f"{folder.controller}: expected the controller of {len(metrics)} generations, got none"
        )
    if not metrics and folder.controller.is_file():
        raise ValueError(f"{folder.metrics}: expected a line for every generation, got none")
    if not metrics:
        raise ValueError(f"expected a run of at least one generation in {path}, found none over yet")
    controller = LinearController.load(folder.controller)
    for number, record in enumerate(metrics, start=1):
        try:
            _check_weights(record, len(controller.weights))
        except ValueError as error:
            raise ValueError(f"{folder.metrics}: line {number}: {error}") from error
    check_scores(folder.controller, controller)
    versions = controller.provenance.get("versions")
    if not (versions is None or isinstance(versions, dict)):
        raise ValueError(
            f"{folder.controller}: expected provenance.versions to be an object, got {versions!r}"
        )
    return RunRecord(path.resolve().name, recipe, metrics, controller, read_starts(folder.starts))


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
            record = json.loads(line)
            check_record(record)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: line {number}: {error}") from error
        records.append(record)
    return records


def check_record(record: Any, count: int | None = None) -> None:
    """Check a line of a metrics file, parsed.

    Args:
        record: The line.
        count: The number of weights; None leaves their distribution unchecked.

    Raises:
        ValueError: If it is no record of a generation of Tetris; the message names the field.
    """
    if not isinstance(record, dict):
        raise ValueError(f"expected an object, got {type(record).__name__}")
    for name in _NUMBERS:
        if not _is_number(record.get(name)):
            raise ValueError(f"expected {name} to be a number, got {record.get(name)!r}")
    for name in _FIGURES:
        if not _is_figure(record.get(name, "nothing")):
            raise ValueError(f"expected {name} to be a number or null, got {record.get(name)!r}")
    if count is not None:
        _check_weights(record, count)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _GREATEST


def _check_weights(record: Metrics, count: int) -> None:
    for name in ("mean", "std"):
        vector = record.get(name)
        if not (isinstance(vector, list) and len(vector) == count and all(map(_is_number, vector))):
            raise ValueError(f"expected {name} to be {count} numbers")


def check_scores(path: Path, controller: LinearController) -> None:
    """Check the scores and estimates in the provenance of a controller.

    Args:
        path: The file of the controller, for the message.
        controller: The controller.

    Raises:
        ValueError: If one is damaged; the message names the file and the field.
    """
    for kind, counts in _SCORE_COUNTS.items():
        field = f"{path}: provenance.{kind}"
        scores = controller.provenance.get(kind)
        if not (scores is None or isinstance(scores, list)):
            raise ValueError(f"{field}: expected a list or null, got {scores!r}")
        for number, score in enumerate(scores or ()):
            try:
                _check_score(score, counts)
            except ValueError as error:
                raise ValueError(f"{field}[{number}]: {error}") from error


def _check_score(score: object, counts: Sequence[str]) -> None:
    if not isinstance(score, dict):
        raise ValueError(f"expected an object, got {score!r}")
    measured = score.get("measured", dict.fromkeys(_MEASURED, ""))
    ends = score.get("ci95")
    for name, wanted, fits in (
        *((name, "a text", isinstance(score.get(name), str)) for name in _SCORE_TEXTS),
        *((name, "a number of at least 0", _is_count(score.get(name))) for name in counts),
        ("pieces_known", "a number of at least 0", _is_count(score.get("pieces_known", 1))),
        ("lines_per_game", "a number or null", _is_figure(score.get("lines_per_game", ""))),
        (
            "ci95",
            "two numbers, the second may be null",
            isinstance(ends, list) and len(ends) == 2 and _is_number(ends[0]) and _is_figure(ends[1]),
        ),
        (
            "measured",
            f"texts under {', '.join(_MEASURED)}",
            isinstance(measured, dict) and all(isinstance(measured.get(part), str) for part in _MEASURED),
        ),
    ):
        if not fits:
            raise ValueError(f"expected {name} to be {wanted}, got {score.get(name)!r}")


def _is_figure(value: object) -> bool:
    return value is None or _is_number(value)


def _is_count(value: object) -> bool:
    return _is_number(value) and value >= 0  # type: ignore[operator] # a number
