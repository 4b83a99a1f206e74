"""Measure the record: the controller that the preset of that name learns, and its score beside DT-20's.

python scripts/measure/record.py train --keep runs/record --stop-after 540 --json record_training.json
python scripts/measure/record.py score --training record_training.json --json record_score.json
python scripts/measure/record.py low_boards --json best_scores.json

Training goes on where the same command stopped; its seconds are those of all generations, as the trainer
measures them. For the score the learned controller and the best published one make the same number of
decisions, by the published rule on 10x20, on the same pieces, which neither training nor whoever chose the
recipe has met. On low boards a GPU ends many thousand games of the controllers that come with the package.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure.cli import Unfinished, add_keep, measurement
from measure.engines import build_engines
from measure.processes import begin, evaluate, flags, metrics, python
from measure.provenance import Measured, read_result
from tetris import LinearController, Score, published, resolve
from tetris.commands.command_line import fail, one_line_errors, one_of, run
from tetris.training.recipe import make_recipe
from tetris.training.run_folder import RunFolder
from tetris.training.training import prepare_engine

RECORD: Mapping[str, str | int] = {"preset": "record", "device": "cuda", "seed": 1}
COMMAND = " ".join(map(str, ("python scripts/train_tetris.py", *flags(RECORD))))
"""What a person runs to learn the same controller."""

REFERENCE, BOARD = "dt20", "10x20"
SCORED = 200_000_000_000
"""Decisions of each controller: some 1,600 games of DT-20."""

SCORE_SEED = 2013
"""Of the pieces; not the one by which scores are measured while a recipe is looked for."""

CONTROLLERS = ("best", "anywidth", "dt20")
LOW_BOARDS = {"10x10": 2_000_000_000, "10x12": 10_000_000_000}
"""Decisions of each of the controllers: tens of thousands of games of the best one."""

METHOD = (
    "exact: games ended are Poisson, those of one controller binomial given those of both (Przyborowski & "
    "Wilenski 1940), with the interval of Clopper & Pearson (1934)"
)


def ratio(score: Score, other: Score) -> dict[str, Any]:
    """Return how many times as many lines a game one score says as another, with its 95 % interval.

    Games that end in a fixed number of decisions are Poisson. Given how many ended of both controllers
    together, those of the first are binomial, with a probability that follows from the lines of both and the
    ratio sought (Przyborowski and Wilenski, Biometrika 31, 1940); its interval is that of Clopper and Pearson
    (Biometrika 26, 1934). The upper end is None where the first ended no game.

    Raises:
        ValueError: If one has no line.
    """
    from scipy.stats import binomtest

    if min(score.lines, other.lines) < 1:
        raise ValueError(f"expected scores with lines, got {score.lines} and {other.lines}")
    games = score.games + other.games
    low, high = binomtest(score.games, games).proportion_ci(0.95, "exact") if games else (0.0, 1.0)
    exposure = score.lines / other.lines
    # A share p of the games: as many times the games a line as p / (1 - p) / exposure.
    ends = [exposure * (1 - high) / high, exposure * (1 - low) / low if low else None]
    value = exposure * other.games / score.games if score.games and other.games else None
    return {"value": value, "ci95": ends, "method": METHOD}


def train(kept: Path, stop_after_s: float | None) -> Measured:
    """Train, or go on with what is kept; raises Unfinished without time for all generations."""
    began = time.monotonic()
    recipe = make_recipe(str(RECORD["device"]), RECORD, {"score_decisions": 0})
    begin(kept, recipe.to_dict())
    prepare_engine(recipe)
    run = RunFolder(kept / "run")
    words = (*flags(RECORD), "--score-decisions", 0, "--out", run.path)
    arguments = ("--resume", run.path) if run.config.is_file() else words
    if stop_after_s is not None:
        left = stop_after_s - (time.monotonic() - began)
        arguments += ("--time-limit", f"{max(left, 1.0):.1f}")
    python("scripts/train_tetris.py", *arguments)
    if not run.controller.is_file():
        raise Unfinished(f"none of {recipe.total_generations} generations")
    controller = LinearController.load(run.controller)
    provenance = controller.provenance
    played, seconds = provenance["generation"], provenance["seconds"]
    if played < recipe.total_generations:
        raise Unfinished(f"{played} of {recipe.total_generations} generations, {seconds:.0f} s of training")
    figures = {
        "record.training_seconds": seconds,
        "record.training_decisions": provenance["decisions"],
        "record.generations": played,
    }
    data = {
        "command": COMMAND,
        "config": provenance["config"],
        "feature_names": list(controller.names_on(controller.rules)),
        "controller": controller.to_dict(),
    }
    return figures, data, {"": metrics(run.path)}


def score(trained: Mapping[str, Any]) -> Measured:
    """Return figures and details of the learned controller beside the best published one."""
    controller = LinearController.from_dict(trained["data"]["controller"])
    build_engines((each.features, controller.rules.width) for each in (controller, published(REFERENCE)))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "learned.json"
        controller.save(file)
        where = {"device": RECORD["device"], "seed": SCORE_SEED}
        learned, reference = evaluate((file, REFERENCE), BOARD, SCORED, **where)
    learned["controller"] = "learned"
    times = ratio(*(Score(each["lines"], each["games"], each["decisions"]) for each in (learned, reference)))
    figures = {
        f"record.{BOARD}.lines_per_game": _lines(learned),
        f"record.{REFERENCE}.{BOARD}.lines_per_game": _lines(reference),
        "record.ratio": times["ci95"][0] if times["value"] is None else times["value"],
        "record.score_decisions": learned["decisions"] + reference["decisions"],
    }
    high = reference["ci95"][1]
    beats = high is not None and learned["ci95"][0] > high
    return figures, {"score": [learned, reference], "ratio": times, "beats": beats}, {}


def _lines(measured: Mapping[str, Any]) -> float:
    """Return lines a game; where no game ended, the least it can be."""
    lines: float | None = measured["lines_per_game"]
    return float(measured["ci95"][0]) if lines is None else lines


def low_boards() -> Measured:
    """Return the scores of the controllers that come with the package."""
    build_engines((resolve(name).features, 10) for name in CONTROLLERS)
    found = [each for board, count in LOW_BOARDS.items() for each in evaluate(CONTROLLERS, board, count)]
    figures = {
        f"{each['controller']}.{each['board']}.lines_per_game": each["lines_per_game"] for each in found
    }
    for each in found:
        del each["features"], each["weights"]
    return figures, {"measurements": found}, {}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give a parser the step and its files."""
    parser.add_argument(
        "step", type=one_of("step", ("train", "score")), metavar="STEP", help="train or score"
    )
    add_keep(parser)
    parser.add_argument("--training", type=Path, metavar="FILE", help="the result of train")


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return what a step comes to."""
    with one_line_errors():
        if arguments.step == "train":
            return train(arguments.keep or Path("runs/record"), arguments.stop_after)
        if arguments.step == "low_boards":
            return low_boards()
        if arguments.training is None:
            fail("expected --training FILE")
        return score(read_result(arguments.training))


main = measurement(measure, __doc__, add_arguments, "train|score|low_boards", ("cuda",))

if __name__ == "__main__":
    run(main)
