"""Read the folder of a training run: recipe, a record per generation, the controller, its scores."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
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
    controller = LinearController.load(folder.controller)
    if {len(record[name]) for record in metrics for name in ("mean", "std")} != {len(controller.weights)}:
        raise ValueError(f"{folder.metrics}: expected {len(controller.weights)} numbers of mean and std")
    try:
        for kind, count in (("score", "games"), ("estimates", "estimates")):
            for score in controller.provenance.get(kind) or ():
                _check({"pieces_known": 1, **score}, {**_SCORE, count: _is_number})
                if "measured" in score:  # of the package
                    _check(score["measured"], dict.fromkeys(("machine", "date", "commit"), _is_text))
        dict(controller.provenance.get("versions") or {})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{folder.controller}: damaged provenance: {error}") from error
    return RunRecord(path.resolve().name, recipe, metrics, controller, _read_lines(folder.starts, {}))


def read_metrics(path: Path) -> list[Metrics]:
    """Read a metrics file."""
    return _read_lines(path, _METRICS)


def _read_lines(path: Path, schema: _Schema) -> list[dict[str, Any]]:
    """Read the objects of a file, one a line; an incomplete last line, of a run in progress, is left out."""
    records: list[dict[str, Any]] = []
    try:
        content = read_bytes(path, MOST_BYTES) if path.exists() else b""
        for line in content.decode(errors="replace").split("\n")[:-1]:
            record = json.loads(line)
            _check(record, schema)
            records.append(record)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: line {len(records) + 1}: {error}") from error
    return records


def _is_number(value: object) -> bool:  # no NaN and no infinity
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _GREATEST


def _is_figure(value: object) -> bool:
    return value is None or _is_number(value)


def _is_vector(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _is_interval(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and _is_number(value[0]) and _is_figure(value[1])


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_GREATEST = 1e300
_Schema = Mapping[str, Callable[[object], bool]]

_COUNTS = ("generation", "stage", "board_width", "board_height", "seconds", "elapsed_s", "lines", "decisions")
_FITNESS = ("generation_best", "elite_mean", "elite_threshold", "std_mean", "learned_mean_fitness")
_METRICS: _Schema = {
    **dict.fromkeys(_COUNTS, _is_number),
    **dict.fromkeys(_FITNESS, _is_figure),
    **dict.fromkeys(("mean", "std"), _is_vector),
}
_SCORE: _Schema = {
    **dict.fromkeys(("controller", "board", "rule", "pieces"), _is_text),
    **dict.fromkeys(("decisions", "pieces_known"), _is_number),
    **{"lines_per_game": _is_figure, "ci95": _is_interval},
}


def _check(record: Any, schema: _Schema) -> None:
    if not isinstance(record, dict):
        raise ValueError(f"expected an object, got {record!r}")
    for name, fits in schema.items():
        if not fits(record.get(name, "nothing")):
            raise ValueError(f"expected another {name}, got {record.get(name)!r}")
