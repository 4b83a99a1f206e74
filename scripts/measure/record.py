"""Measure the record: the controller that the preset of that name learns, and its score beside DT-20's.

python scripts/measure/record.py train --keep runs/record --stop-after 540 --json record_training.json
python scripts/measure/record.py score --training record_training.json --json record_score.json
python scripts/measure/record.py ship --training record_training.json --score record_score.json

Training goes on where the same command stopped; its seconds are those of all generations, as the trainer
measures them. For the score the learned controller and the best published one make the same number of
decisions, by the published rule on 10x20, on the same pieces, which neither training nor whoever chose the
recipe has met. ``ship`` writes the controller into the package under the name ``best``, where it beats
DT-20's.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.files import write_text
from measure.cli import Unfinished, make_parser, measurement, read
from measure.engines import build_engines, build_for_training
from measure.processes import begin, python
from measure.provenance import ROOT, Measured, read_result, write_result
from measure.training import metrics
from tetris import LinearController, Score, published
from tetris.commands.command_line import fail, one_line_errors, one_of, positive_seconds, run
from tetris.devices import check_gpu
from tetris.training.recipe import make_recipe
from tetris.training.run_folder import RunFolder

RECORD: Mapping[str, str | int] = {"preset": "record", "device": "cuda", "seed": 1}
COMMAND = f"python scripts/train_tetris.py {' '.join(f'--{name} {value}' for name, value in RECORD.items())}"
"""What a person runs to learn the same controller."""

REFERENCE, BOARD = "dt20", "10x20"
SCORED = 200_000_000_000
"""Decisions of each controller: some 1,600 games of DT-20."""

SCORE_SEED = 2013
"""Of the pieces; not the one by which scores are measured while a recipe is looked for."""

BEST = ROOT / "tetris" / "controllers" / "best.json"
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
    begin(kept, recipe.device, recipe.to_dict())
    build_for_training(recipe)
    run = RunFolder(kept / "run")
    if run.config.is_file():
        arguments: tuple[object, ...] = ("--resume", run.path)
    else:
        flags = [word for name, value in RECORD.items() for word in (f"--{name}", value)]
        arguments = (*flags, "--score-decisions", 0, "--out", run.path)
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
        words = (file, REFERENCE, "--board", BOARD, "--device", RECORD["device"], "--decisions", SCORED)
        output = python("scripts/evaluate_tetris.py", *words, "--seed", SCORE_SEED, "--json")
    learned, reference = json.loads(output)
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


def _lines(measurement: Mapping[str, Any]) -> float:
    """Return lines a game; where no game ended, the least it can be."""
    lines: float | None = measurement["lines_per_game"]
    return float(measurement["ci95"][0]) if lines is None else lines


def best_controller(trained: Mapping[str, Any], scored: Mapping[str, Any]) -> LinearController:
    """Return the controller of the record as it comes with the package, under the name ``best``.

    Raises:
        ValueError: If the score is another controller's, or its interval does not lie above DT-20's.
    """
    controller = LinearController.from_dict(trained["data"]["controller"])
    if tuple(scored["data"]["score"][0]["weights"]) != controller.weights:
        raise ValueError("expected training and score of one controller, got those of two")
    if not scored["data"]["beats"]:
        raise ValueError(f"expected a controller that beats {REFERENCE}, got one that does not")
    told = controller.provenance
    provenance = {
        "made_by": told["made_by"],
        "command": trained["data"]["command"],
        **{key: value for key, value in told.items() if key not in ("made_by", "score")},
        "machine": trained["machine"]["gpu"],
        "commit": trained["commit"],
        "score": [
            {key: value for key, value in each.items() if key not in ("features", "weights")}
            for each in scored["data"]["score"]
        ],
        "ratio": scored["data"]["ratio"],
    }
    return LinearController(controller.features, controller.weights, controller.rules, "best", provenance)


@measurement
def main(argv: Sequence[str] | None = None) -> None:
    """Take a step, print the figures, write the result."""
    parser = make_parser(__doc__, "train|score|ship", ())
    parser.add_argument("step", type=one_of("step", ("train", "score", "ship")), metavar="STEP")
    parser.add_argument("--keep", type=Path, default=Path("runs/record"), metavar="FOLDER", help="of the run")
    parser.add_argument("--stop-after", type=positive_seconds, metavar="S", help="train for about S seconds")
    parser.add_argument("--training", type=Path, metavar="FILE", help="the result of train")
    parser.add_argument("--score", type=Path, metavar="FILE", help="the result of score")
    arguments, _ = read(parser, argv)
    needed = {"train": (), "score": ("training",), "ship": ("training", "score")}[arguments.step]
    if any(getattr(arguments, name) is None for name in needed):
        fail(f"expected {' and '.join(f'--{name} FILE' for name in needed)}")
    with one_line_errors():
        trained = read_result(arguments.training) if needed else {}
        if arguments.step == "ship":
            best = best_controller(trained, read_result(arguments.score))
            write_text(BEST, json.dumps(best.to_dict(), indent=1, allow_nan=False) + "\n")
            return
        check_gpu("the record", "scripts/train_tetris.py")
        found = train(arguments.keep, arguments.stop_after) if arguments.step == "train" else score(trained)
    figures, data, series = found
    print(json.dumps(figures, indent=1))
    write_result(arguments.json, figures, data, str(RECORD["device"]), series)


if __name__ == "__main__":
    run(main)
