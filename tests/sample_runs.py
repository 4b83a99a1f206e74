"""Small finished runs for the tests of reports, and what stands for estimating."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tetris import Rules, Score, published
from tetris.evaluation.estimates import Estimate
from tetris.evaluation.measurement import Measurement, Trial
from tetris.training.recipe import make_recipe
from tetris.training.run_folder import RunFolder
from tetris.training.training import Training

TINY = (
    *("--device", "python", "--features", "holes,max_height,landing_height", "--board", "5x6"),
    *("--population", 6, "--streams", 1, "--decisions", 20, "--score-decisions", 0),
)
"""A run of milliseconds, as arguments of the command."""

_CLOCK = re.compile(r"/s$|^seconds$|^elapsed_s$")

SCORES = {
    "learned": Score(4_790_833, 1009, 12_000_000),
    "bcts": Score(4_788_688, 1256, 12_000_000),
    "dt20": Score(4_789_873, 0, 12_000_000),
}


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the metrics of a run without what the clock says."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in line if not _CLOCK.search(name)} for line in lines]


def make_run(
    folder: Path, *, scored: bool = True, estimated: bool = False, **settings: str | int
) -> Path:
    """Train for three generations on two small boards, and write scores as if they had been
    measured."""
    tiny: dict[str, str | int] = {
        "population": 4,
        "streams": 2,
        "board": "5x6",
        "score_decisions": 0,
    }
    tiny |= {"features": "holes,max_height", "curriculum": "5x6:2:20,5x7:1:30", "seed": 3}
    recipe = make_recipe("python", {**tiny, **settings})
    run = RunFolder(folder)
    training = Training(recipe, run)
    with run.claimed(recipe):
        run.add_start(recipe.device)
        training.trainer.run()
    training.save_controller(scores=measurements() * scored + estimates() * estimated)
    return folder


def estimating(rates: Sequence[float], decisions: int) -> Callable[..., Estimate]:
    """Return a stand-in for `tetris.evaluation.estimates.estimate` that adds the rates in
    batches."""

    def estimate(
        trial: Trial,
        enough: Callable[[Estimate], bool],
        streams: int,
        check: Callable[[], None] | None = None,
    ) -> Estimate:
        batches = (
            Estimate(trial, streams, tuple(rates) * number, decisions * number, 1.0)
            for number in itertools.count(1)
        )
        return next(filter(enough, batches))

    return estimate


def estimates() -> list[dict[str, Any]]:
    """Return estimates on 10x20: a whole one, one without an upper end, and one without any end
    of a game."""
    rates = {"learned": (1e-9, 1.2e-9) * 8, "bcts": (1e-8, *[0.0] * 15), "dt20": (0.0,) * 16}
    controllers = {
        "learned": published("dt10"),
        "bcts": published("bcts"),
        "dt20": published("dt20"),
    }
    return [
        Estimate(
            Trial(name, controllers[name], Rules(10, 20), "cpu", 1), 64, rate, 39_000_000, 2.5
        ).to_dict()
        for name, rate in rates.items()
    ]


def measurements() -> list[dict[str, Any]]:
    """Return scores of three controllers on 10x10, that of dt20 without a game that ended."""
    controllers = {
        "learned": published("dt10"),
        "bcts": published("bcts"),
        "dt20": published("dt20"),
    }
    rules = Rules(10, 10)
    return [
        Measurement(Trial(name, controllers[name], rules, "cpu"), score, 2.5).to_dict()
        for name, score in SCORES.items()
    ]
