"""Measure the record: the controller that the preset of that name learns, and its score beside DT-20's.

python scripts/measure record train --keep runs/record --stop-after 540 --json record_training.json
python scripts/measure record score --training record_training.json --ship tetris/controllers/best.json
python scripts/measure record low_boards --json best_scores.json

Training goes on where the same command stopped. For the score both make the same number of decisions on the
same pieces, which neither training nor whoever chose the recipe has met. On low boards a GPU ends many
thousand games of the controllers that come with the package.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernels.support.files import write_text
from measure.cli import KEEP, Unfinished, choice, measurement
from measure.engines import build_engines
from measure.processes import evaluate, flags, least_lines, metrics, python
from measure.provenance import Measured, read_result
from tetris import LinearController, Score, published, resolve
from tetris.commands.command_line import fail, one_line_errors
from tetris.training.recipe import make_recipe
from tetris.training.run_folder import RunFolder
from tetris.training.training import prepare_engine

RECORD: Mapping[str, str | int] = {"preset": "record", "device": "cuda", "seed": 1}
COMMAND = " ".join(map(str, ("python scripts/train_tetris.py", *flags(RECORD))))
"""What a person runs to learn the same controller."""

REFERENCE, BOARD = "dt20", "10x20"
SCORED = 200_000_000_000  # decisions of each controller: some 1,600 games of DT-20
SCORE_SEED = 2013  # of the pieces; not the one by which scores are measured while a recipe is looked for

SHIPPED = ("best", "anywidth")
CONTROLLERS = (*SHIPPED, "dt20")
LOW_BOARDS = {"10x10": 2_000_000_000, "10x12": 10_000_000_000}  # decisions of each of them


def ratio(score: Score, other: Score) -> dict[str, Any]:
    """Return how many times as many lines a game one score says as another, with its 95 % interval.

    It is exact: games ended are Poisson, those of one controller binomial given those of both (Przyborowski
    and Wilenski, Biometrika 31, 1940), with the interval of Clopper and Pearson (Biometrika 26, 1934). The
    upper end is None where the first ended no game.
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
    return {"value": value, "ci95": ends}


def train(kept: Path, stop_after_s: float | None) -> Measured:
    """Train, or go on with what is kept; raises Unfinished without time for all generations."""
    began = time.monotonic()
    recipe = make_recipe(str(RECORD["device"]), RECORD)
    prepare_engine(recipe)
    run = RunFolder(kept)
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
        "train.split.decisions_per_second": provenance["decisions"] / seconds,
    }
    data = {
        "command": COMMAND,
        "config": provenance["config"],
        "feature_names": list(controller.names_on(controller.rules)),
        "controller": controller.to_dict(),
    }
    return figures, data, {"": metrics(run.path)}


def score(trained: Mapping[str, Any], ship: Path | None) -> Measured:
    """Return figures and details of the learned controller beside the best published one.

    Where the interval of the learned one is above the other's, it is written to the file ``ship``.
    """
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
        f"record.{BOARD}.lines_per_game": least_lines(learned),
        f"record.{REFERENCE}.{BOARD}.lines_per_game": least_lines(reference),
        "record.ratio": times["ci95"][0] if times["value"] is None else times["value"],
        "record.score_decisions": learned["decisions"] + reference["decisions"],
    }
    high = reference["ci95"][1]
    beats = high is not None and learned["ci95"][0] > high
    data = {"score": [learned, reference], "ratio": times, "beats": beats}
    if ship is not None and beats:
        shipped = best_controller(trained, data).to_dict()
        write_text(ship, json.dumps(shipped, indent=1, allow_nan=False) + "\n")
    return figures, data, {}


def best_controller(trained: Mapping[str, Any], scored: Mapping[str, Any]) -> LinearController:
    """Return the controller of the record as it comes with the package under the name ``best``."""
    controller = LinearController.from_dict(trained["data"]["controller"])
    told = controller.provenance
    provenance = {
        "made_by": told["made_by"],
        "command": trained["data"]["command"],
        **{key: value for key, value in told.items() if key not in ("made_by", "score")},
        "machine": trained["machine"]["gpu"],
        "commit": trained["commit"],
        "score": [
            {key: value for key, value in each.items() if key not in ("features", "weights")}
            for each in scored["score"]
        ],
        "ratio": scored["ratio"],
    }
    return LinearController(controller.features, controller.weights, controller.rules, "best", provenance)


def ship_scores(file: Path, found: Sequence[Mapping[str, Any]]) -> None:
    """Put the scores of a controller of the package, by its file's name, into the file."""
    told = json.loads(file.read_text())
    scores = [each for each in found if each["controller"] == file.stem]
    boards = {each["board"] for each in scores}
    known = told["provenance"]["score"]
    told["provenance"]["score"] = [each for each in known if each["board"] not in boards] + scores
    write_text(file, json.dumps(told, indent=1, allow_nan=False) + "\n")


def low_boards(ship: Path | None) -> Measured:
    """Return the scores of the shipped controllers, and put them into those in the folder ``ship``."""
    build_engines((resolve(name).features, 10) for name in CONTROLLERS)
    found = [each for board, count in LOW_BOARDS.items() for each in evaluate(CONTROLLERS, board, count)]
    figures = {f"{each['controller']}.{each['board']}.lines_per_game": least_lines(each) for each in found}
    for each in found:
        del each["features"], each["weights"]
    if ship is not None:
        for name in SHIPPED:
            ship_scores(ship / f"{name}.json", found)
    return figures, {"measurements": found}, {}


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return what a step comes to."""
    with one_line_errors():
        if arguments.step == "train":
            return train(arguments.keep or Path("runs/record"), arguments.stop_after)
        if arguments.step == "low_boards":
            return low_boards(arguments.ship)
        if arguments.training is None:
            fail("expected --training FILE")
        return score(read_result(arguments.training), arguments.ship)


STEPS = ("train", "score", "low_boards")
TRAINING = {"type": Path, "metavar": "FILE", "help": "the result of train"}
SHIP = {
    "type": Path,
    "metavar": "FILE",
    "help": "where a controller is written that beats DT-20, or the folder of those shipped",
}
OPTIONS = {"step": choice("step", STEPS), "--training": TRAINING, "--ship": SHIP, **KEEP}
main = measurement(measure, __doc__, OPTIONS, "|".join(STEPS), ("cuda",))
