"""The record: a controller learned from nothing by the preset of that name, and how good it is beside DT-20.

Two parts of the report of a GPU. The first trains, in a process of its own and over several commands where
one has not the time; its seconds are those of all generations, as the trainer measures them. The second lets
the learned controller and the best published one make the same number of decisions, by the published rule on
10x20, on the same pieces, which neither training nor whoever chose the recipe has met.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _command import python
from _continued import Continued, Unfinished
from _engine_builds import build_engines
from _ratio import ratio
from _results import describe, write_json

from tetris import LinearController, Score, published
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

SECONDS = 1500.0
"""The most that a command of each part may take."""

_BEGUN = "begun.json"


def record_training(session: Continued) -> dict[str, Any]:
    """Return the learned controller, and how long it took.

    Raises:
        RuntimeError: If what was kept is another run, or training fails.
        Unfinished: If there was no time for all generations.
    """
    began = time.monotonic()
    recipe = make_recipe(str(RECORD["device"]), RECORD, {"score_decisions": 0})
    run = RunFolder(session.kept / "run")
    origin = describe("record_training", recipe.device, engine=True, splitting=True)
    begun = {**origin, "commit": session.commit}
    build_engines([(recipe.features, recipe.rules.width)])
    python("-m", "kernels", "build", "normal", timeout_s=SECONDS)
    if run.config.is_file():
        file = session.kept / _BEGUN
        known = json.loads(file.read_text()) if file.is_file() else {}
        if run.recipe() != recipe or _conditions(known) != _conditions(begun):
            raise RuntimeError(
                f"expected a run of preset {recipe.preset} as it is here, got another one in {session.kept}: "
                "go on with what it was begun with, or remove the folder"
            )
        begun = known
        arguments: tuple[object, ...] = ("--resume", run.path)
    else:
        session.kept.mkdir(parents=True, exist_ok=True)
        write_json(session.kept / _BEGUN, begun)
        flags = [word for name, value in RECORD.items() for word in (f"--{name}", value)]
        arguments = (*flags, "--score-decisions", 0, "--out", run.path)
    if session.stop_after_s is not None:
        left = session.stop_after_s - (time.monotonic() - began)
        arguments += ("--time-limit", f"{max(left, 1.0):.1f}")
    python("scripts/train_tetris.py", *arguments, timeout_s=SECONDS)
    if not run.controller.is_file():
        raise Unfinished(f"none of {recipe.total_generations} generations")
    controller = LinearController.load(run.controller)
    provenance = controller.provenance
    played, seconds = provenance["generation"], provenance["seconds"]
    if played < recipe.total_generations:
        progress = f"{played} of {recipe.total_generations} generations"
        raise Unfinished(f"{progress}, {seconds:.0f} s of training")
    print(f"record: {provenance['decisions']:,} decisions in {seconds:.1f} s of training", flush=True)
    return {
        **begun,
        "figures": {
            "record.training_seconds": seconds,
            "record.training_decisions": provenance["decisions"],
            "record.generations": played,
        },
        "command": COMMAND,
        "config": provenance["config"],
        "feature_names": list(controller.names_on(controller.rules)),
        "controller": controller.to_dict(),
        "metrics": [_without_distribution(line) for line in run.metrics.read_text().splitlines()],
    }


def record_score(session: Continued) -> dict[str, Any]:
    """Return the scores of the learned controller and of the best published one, and their ratio.

    Raises:
        RuntimeError: If there is no learned controller in the report, or scoring fails.
    """
    trained = session.report.get("parts", {}).get("record_training")
    if trained is None:
        raise RuntimeError("expected record_training in the result file, found none: run that part first")
    controller = LinearController.from_dict(trained["controller"])
    here = {**describe("record_score", str(RECORD["device"]), engine=True), "commit": session.commit}
    known = session.report["parts"].get("record_score")
    goes_on = session.stop_after_s is not None and measured_record(session.report) is not None
    if goes_on and known and all(known[key] == here[key] for key in ("sources", "versions", "commit")):
        return dict(known)  # from the command before, of which this one does the rest
    players = (controller, published(REFERENCE))
    build_engines((player.features, controller.rules.width) for player in players)
    with tempfile.TemporaryDirectory() as folder:
        learned_file = Path(folder) / "learned.json"
        controller.save(learned_file)
        output = python(
            *("scripts/evaluate_tetris.py", learned_file, REFERENCE, "--board", BOARD),
            *("--device", RECORD["device"], "--decisions", SCORED, "--seed", SCORE_SEED, "--json"),
            timeout_s=SECONDS,
        )
    learned, reference = json.loads(output)
    learned["controller"] = "learned"
    times = ratio(*(Score(each["lines"], each["games"], each["decisions"]) for each in (learned, reference)))
    high = reference["ci95"][1]
    beats = high is not None and learned["ci95"][0] > high
    print(f"record: {learned['ci95']} lines a game, {REFERENCE} {reference['ci95']}", flush=True)
    return {
        **here,
        "figures": {
            f"record.{BOARD}.lines_per_game": _lines(learned),
            f"record.{REFERENCE}.{BOARD}.lines_per_game": _lines(reference),
            "record.ratio": times.ci95[0] if times.value is None else times.value,
            "record.score_decisions": learned["decisions"] + reference["decisions"],
        },
        "score": [learned, reference],
        "ratio": times.to_dict(),
        "beats": beats,
    }


def _without_distribution(line: str) -> dict[str, Any]:
    """Return a generation's record without mean and standard deviation, which make nine tenths of it."""
    record = json.loads(line)
    return {name: value for name, value in record.items() if name not in ("mean", "std")}


def _conditions(begun: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what has to stay the same from the first command of a training to the last."""
    return begun.get("sources"), begun.get("versions"), begun.get("machine", {}).get("gpu")


def _lines(measurement: Mapping[str, Any]) -> float:
    """Return lines a game; where no game ended, the least it can be."""
    lines: float | None = measurement["lines_per_game"]
    return float(measurement["ci95"][0]) if lines is None else lines


def measured_record(report: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Return training and score out of a report; None where one is missing, or of another controller."""
    parts = report.get("parts", {})
    trained, scored = parts.get("record_training"), parts.get("record_score")
    if trained is None or scored is None or scored["score"][0]["weights"] != trained["controller"]["weights"]:
        return None
    return trained, scored


def best_controller(report: Mapping[str, Any]) -> LinearController | None:
    """Return the controller of the record as it comes with the package, under the name ``best``.

    Args:
        report: The report of a GPU.

    Returns:
        None where it was not measured, or its interval does not lie above DT-20's.
    """
    found = measured_record(report)
    if found is None or not found[1]["beats"]:
        return None
    trained, scored = found
    controller = LinearController.from_dict(trained["controller"])
    provenance = {
        "made_by": controller.provenance["made_by"],
        "command": trained["command"],
        **{key: value for key, value in controller.provenance.items() if key not in ("made_by", "score")},
        "machine": trained["machine"]["gpu"],
        "commit": trained["commit"],
        "sources": trained["sources"],
        "score": [
            {key: value for key, value in each.items() if key not in ("features", "weights")}
            for each in scored["score"]
        ],
        "ratio": scored["ratio"],
    }
    return LinearController(controller.features, controller.weights, controller.rules, "best", provenance)
