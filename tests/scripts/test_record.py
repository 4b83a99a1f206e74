"""The record: trained over several commands, scored beside DT-20, and shipped with its provenance."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import _record
import pytest
from _command import python as run_python
from _continued import Continued, Unfinished
from _machine import source_digest
from _record import best_controller, measured_record, record_score, record_training
from _results import merged, stale_parts

from tetris import LinearController, published

GENERATIONS = 400
TINY = {
    **{"preset": "quick", "device": "python", "seed": 1, "board": "5x6", "generations": GENERATIONS},
    **{"features": "holes,max_height,landing_height", "population": 6, "streams": 1, "decisions": 30},
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """A record that the Python engine learns in a few seconds; the commands that were run for it."""
    commands: list[tuple[str, ...]] = []

    def python(*arguments: object, timeout_s: float) -> str:
        commands.append(tuple(map(str, arguments)))
        return "" if arguments[0] == "-m" else run_python(*arguments, timeout_s=timeout_s)

    monkeypatch.setattr(_record, "python", python)
    monkeypatch.setattr(_record, "build_engines", list)
    monkeypatch.setattr(_record, "RECORD", TINY)
    monkeypatch.setattr(_record, "BOARD", "5x6")
    monkeypatch.setattr(_record, "SCORED", 1280)
    return commands


def test_training_is_stopped_in_time_and_goes_on(tiny: list[tuple[str, ...]], tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with pytest.raises(Unfinished, match=rf"of {GENERATIONS} generations"):
        record_training(Continued(kept, {}, 0.1, "abc"))
    result = record_training(Continued(kept, {}, None, "def"))
    trainings = [command for command in tiny if command[0] == "scripts/train_tetris.py"]
    assert trainings[0][-2:] == ("--time-limit", "1.0")
    assert trainings[1][1:] == ("--resume", str(kept / "run"))
    assert result["commit"] == "abc"  # that of the beginning
    figures, provenance = result["figures"], result["controller"]["provenance"]
    assert figures["record.generations"] == GENERATIONS
    assert figures["record.training_decisions"] == GENERATIONS * 7 * 30
    # The trainer's sum over both commands.
    assert [each["generation"] for each in result["metrics"]] == list(range(1, GENERATIONS + 1))
    assert figures["record.training_seconds"] == pytest.approx(result["metrics"][-1]["elapsed_s"])
    assert result["config"] == provenance["config"]
    assert result["feature_names"] == ["holes", "max_height", "landing_height"]
    assert result["sources"] == source_digest("cpu")


@pytest.mark.usefixtures("tiny")
def test_a_run_of_another_recipe_or_of_other_sources_is_not_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(Unfinished):
        record_training(Continued(tmp_path, {}, 0.1))
    with monkeypatch.context() as changed:
        changed.setattr(_record, "RECORD", {**TINY, "population": 7})
        with pytest.raises(RuntimeError, match="expected a run of preset quick as it is here"):
            record_training(Continued(tmp_path, {}))
    begun = json.loads((tmp_path / "begun.json").read_text())
    machine = {**begun["machine"], "gpu": "another"}
    for other in ({**begun, "sources": "others"}, {**begun, "machine": machine}, {}):
        (tmp_path / "begun.json").write_text(json.dumps(other))
        with pytest.raises(RuntimeError, match="expected a run of preset quick as it is here"):
            record_training(Continued(tmp_path, {}))
    (tmp_path / "begun.json").unlink()
    with pytest.raises(RuntimeError, match="expected a run of preset quick as it is here"):
        record_training(Continued(tmp_path, {}))


def trained_part(**changes: Any) -> dict[str, Any]:
    """The part of a training that learned what dt20 plays."""
    controller = LinearController(
        "dt",
        published("dt20").weights,
        provenance={
            **{"made_by": "scripts/train_tetris.py", "config": {"preset": "record"}, "seed": 1},
            **{"generation": 9, "generations": 9, "decisions": 1000, "seconds": 600.5},
            **{"versions": {"torch": "2.11"}, "score": None},
        },
    )
    return {
        "benchmark": "record_training",
        "date": "2026-01-02T03:04:05",
        "device": "cuda",
        "operators": [],
        "machine": {"gpu": "NVIDIA Test", "cuda": "13.0", "processor": "Test CPU"},
        "versions": {"torch": "2.11", "python": "3.12"},
        "sources": "0123456789abcdef",
        "figures": {"record.training_seconds": 600.5},
        "commit": "abc",
        "command": _record.COMMAND,
        "config": {"preset": "record"},
        "feature_names": list(controller.names_on(controller.rules)),
        "controller": controller.to_dict(),
        "metrics": [],
        **changes,
    }


def score(label: str, lines_per_game: float | None, low: float, high: float | None) -> dict[str, Any]:
    return {
        "controller": label,
        "features": "dt",
        "weights": list(published("dt20").weights),
        "lines_per_game": lines_per_game,
        "ci95": [low, high],
    }


def scored_part(learned: dict[str, Any], reference: dict[str, Any], *, beats: bool) -> dict[str, Any]:
    return {
        "score": [learned, reference],
        "ratio": {"value": 2.0, "ci95": [1.5, 2.5], "method": "exact"},
        "beats": beats,
    }


@pytest.mark.usefixtures("tiny")
def test_both_controllers_play_as_many_decisions_on_the_same_pieces(tmp_path: Path) -> None:
    report = {"parts": {"record_training": trained_part()}}
    result = record_score(Continued(tmp_path, report, None, "abc"))
    learned, reference = result["score"]
    assert (learned["controller"], reference["controller"]) == ("learned", "dt20")
    # The learned one is dt20 itself here: whatever it meets, it plays alike.
    for key in ("lines", "games", "decisions", "board", "rule", "seed", "ci95"):
        assert learned[key] == reference[key]
    assert (learned["decisions"], learned["rule"], learned["seed"]) == (1280, "published", 2013)
    assert result["ratio"]["value"] == 1.0
    assert "binomial" in result["ratio"]["method"]
    assert result["beats"] is False
    assert result["figures"] == {
        "record.5x6.lines_per_game": learned["lines_per_game"],
        "record.dt20.5x6.lines_per_game": reference["lines_per_game"],
        "record.ratio": 1.0,
        "record.score_decisions": 2560,
    }


def answer(monkeypatch: pytest.MonkeyPatch, *counts: tuple[int, int]) -> None:
    """Let the controllers have these lines and games."""
    measured = [
        {
            **score("x", lines / games if games else None, 0.9 * lines / max(games, 1), None),
            **{"lines": lines, "games": games, "decisions": 1000},
        }
        for lines, games in counts
    ]
    for each in measured:
        if each["games"]:
            each["ci95"][1] = 1.1 * each["lines_per_game"]
    monkeypatch.setattr(_record, "python", lambda *arguments, timeout_s: json.dumps(measured))


@pytest.mark.parametrize(
    ("learned", "reference", "beats"),
    [
        ((1000, 10), (1000, 20), True),
        ((1000, 18), (1000, 20), False),
        ((1000, 0), (1000, 20), True),
        ((1000, 10), (1000, 0), False),
    ],
)
@pytest.mark.usefixtures("tiny")
def test_it_beats_dt20_where_the_intervals_are_apart(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    learned: tuple[int, int],
    reference: tuple[int, int],
    beats: bool,
) -> None:
    answer(monkeypatch, learned, reference)
    result = record_score(Continued(tmp_path, {"parts": {"record_training": trained_part()}}))
    assert result["beats"] is beats
    assert all(isinstance(value, (int, float)) for value in result["figures"].values())


@pytest.mark.usefixtures("tiny")
def test_without_a_learned_controller_nothing_is_scored(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="expected record_training in the result file, found none"):
        record_score(Continued(tmp_path, {}))


@pytest.mark.usefixtures("tiny")
def test_engines_are_built_before_the_clock_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    built: list[tuple[str, int]] = []

    def build(features: Iterable[tuple[str, int]]) -> None:
        built.extend(features)

    monkeypatch.setattr(_record, "build_engines", build)
    answer(monkeypatch, (1000, 10), (1000, 20))
    record_score(Continued(tmp_path, {"parts": {"record_training": trained_part()}}))
    assert built == [("dt", 10), ("dt", 10)]


def test_the_best_controller_comes_with_its_provenance() -> None:
    learned, reference = score("learned", 100.0, 90.0, 110.0), score("dt20", 50.0, 45.0, 55.0)
    report = {
        "parts": {
            "record_training": trained_part(),
            "record_score": scored_part(learned, reference, beats=True),
        }
    }
    best = best_controller(report)
    assert best is not None
    assert (best.name, best.weights) == ("best", published("dt20").weights)
    provenance = best.provenance
    assert {"command", "config", "seed", "versions", "score", "decisions", "seconds"} <= provenance.keys()
    assert provenance["command"] == "python scripts/train_tetris.py --preset record --device cuda --seed 1"
    assert (provenance["commit"], provenance["machine"]) == ("abc", "NVIDIA Test")
    assert [each["ci95"] for each in provenance["score"]] == [[90.0, 110.0], [45.0, 55.0]]
    assert "weights" not in provenance["score"][0]
    assert LinearController.from_dict(json.loads(json.dumps(best.to_dict()))) == best


def test_what_does_not_beat_dt20_is_not_called_best() -> None:
    learned, reference = score("learned", 50.0, 45.0, 55.0), score("dt20", 50.0, 45.0, 55.0)
    parts = {"record_training": trained_part(), "record_score": scored_part(learned, reference, beats=False)}
    assert measured_record({"parts": parts}) is not None
    assert best_controller({"parts": parts}) is None
    assert best_controller({}) is None


def test_a_score_of_another_controller_does_not_count() -> None:
    learned, reference = score("learned", 100.0, 90.0, 110.0), score("dt20", 50.0, 45.0, 55.0)
    parts = {"record_training": trained_part(), "record_score": scored_part(learned, reference, beats=True)}
    other = copy.deepcopy(parts)
    other["record_training"]["controller"]["weights"][0] += 1.0
    assert measured_record({"parts": parts}) is not None
    assert measured_record({"parts": other}) is None
    assert measured_record({"parts": {"record_training": parts["record_training"]}}) is None


def test_a_record_of_other_sources_is_stale() -> None:
    part = trained_part(engine=True)
    assert stale_parts(merged({}, {"record_training": part})["parts"]) == ["record_training"]
    part["sources"] = source_digest("cuda")
    assert stale_parts(merged({}, {"record_training": part})["parts"]) == []
