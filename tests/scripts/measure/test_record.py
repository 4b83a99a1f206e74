"""The record: trained over several commands, scored beside DT-20, and shipped with its provenance."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from measure import processes, record
from measure.cli import Unfinished
from measure.processes import python as run_python
from measure.provenance import RESULTS, ROOT
from measure.record import SHIPPED, best_controller, score, ship_scores, train

from tetris import LinearController, published

Script = Callable[..., Any]
CONTROLLERS = ROOT / "tetris" / "controllers"
GENERATIONS = 400  # of which a second is not enough for the fastest machine
TINY = {
    **{"preset": "quick", "device": "python", "seed": 1, "board": "5x6", "generations": GENERATIONS},
    **{"features": "holes,max_height,landing_height", "population": 6, "streams": 1, "decisions": 30},
}
WEIGHTS = list(published("dt20").weights)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """A record that the reference implementation learns in seconds; the commands that were run for it."""
    commands: list[tuple[str, ...]] = []

    def python(*arguments: object) -> str:
        commands.append(tuple(map(str, arguments)))
        return run_python(*arguments)

    monkeypatch.setattr(record, "python", python)
    monkeypatch.setattr(processes, "python", python)
    monkeypatch.setattr(record, "build_engines", list)
    monkeypatch.setattr(record, "RECORD", TINY)
    monkeypatch.setattr(record, "BOARD", "5x6")
    monkeypatch.setattr(record, "SCORED", 1280)
    return commands


def test_training_is_stopped_in_time_and_goes_on(tiny: list[tuple[str, ...]], tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with pytest.raises(Unfinished, match=rf"of {GENERATIONS} generations"):
        train(kept, 0.1)
    figures, data, series = train(kept, None)
    trainings = [command for command in tiny if command[0] == "scripts/train_tetris.py"]
    assert trainings[0][-2:] == ("--time-limit", "1.0")
    assert trainings[1][1:] == ("--resume", str(kept))
    assert figures["record.generations"] == GENERATIONS
    assert figures["record.training_decisions"] == GENERATIONS * 7 * 30
    metrics = series[""]
    assert [each["generation"] for each in metrics] == list(range(1, GENERATIONS + 1))
    # The trainer's sum over both commands.
    assert figures["record.training_seconds"] == pytest.approx(metrics[-1]["elapsed_s"])
    assert data["config"] == data["controller"]["provenance"]["config"]
    assert data["feature_names"] == ["holes", "max_height", "landing_height"]


def trained() -> dict[str, Any]:
    """The result of a training that learned what dt20 plays."""
    controller = LinearController(
        "dt",
        tuple(WEIGHTS),
        provenance={
            **{"made_by": "scripts/train_tetris.py", "config": {"preset": "record"}, "seed": 1},
            **{"generation": 9, "generations": 9, "decisions": 1000, "seconds": 600.5},
            **{"versions": {"torch": "2.11"}, "score": None},
        },
    )
    return {
        "machine": {"gpu": "NVIDIA Test"},
        "commit": "abc",
        "figures": {},
        "data": {"command": record.COMMAND, "controller": controller.to_dict()},
    }


def scored() -> dict[str, Any]:
    one = {"features": "dt", "weights": WEIGHTS, "lines_per_game": 100.0, "ci95": [90.0, 110.0]}
    both = [{"controller": name, **one} for name in ("learned", "dt20")]
    return {"score": both, "ratio": {"value": 2.0, "ci95": [1.5, 2.5]}}


@pytest.mark.usefixtures("tiny")
def test_both_controllers_play_as_many_decisions_on_the_same_pieces() -> None:
    pytest.importorskip("scipy")
    figures, data, _ = score(trained(), None)
    learned, reference = data["score"]
    assert (learned["controller"], reference["controller"]) == ("learned", "dt20")
    # The learned one is dt20 itself here: whatever it meets, it plays alike.
    for key in ("lines", "games", "decisions", "board", "rule", "seed", "ci95"):
        assert learned[key] == reference[key]
    assert (learned["decisions"], learned["rule"], learned["seed"]) == (1280, "published", 2013)
    assert (data["ratio"]["value"], data["beats"]) == (1.0, False)
    assert figures == {
        "record.5x6.lines_per_game": learned["lines_per_game"],
        "record.dt20.5x6.lines_per_game": reference["lines_per_game"],
        "record.ratio": 1.0,
        "record.score_decisions": 2560,
    }


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
def test_it_beats_dt20_and_is_shipped_where_the_intervals_are_apart(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    learned: tuple[int, int],
    reference: tuple[int, int],
    beats: bool,
) -> None:
    pytest.importorskip("scipy")
    built: list[tuple[str, int]] = []

    def build(features: Iterable[tuple[str, int]]) -> None:
        built.extend(features)

    measured = []
    for lines, games in (learned, reference):
        mean = lines / games if games else None
        ends = [0.9 * mean, 1.1 * mean] if mean else [0.9 * lines, None]
        counts = {"lines": lines, "games": games, "decisions": 1000, "features": "dt", "weights": WEIGHTS}
        measured.append({"controller": "x", "lines_per_game": mean, "ci95": ends, **counts})
    monkeypatch.setattr(record, "evaluate", lambda *arguments, **others: measured)
    monkeypatch.setattr(record, "build_engines", build)
    figures, data, _ = score(trained(), tmp_path / "best.json")
    assert data["beats"] is (tmp_path / "best.json").is_file() is beats
    assert all(isinstance(value, (int, float)) for value in figures.values())
    assert built == [("dt", 10), ("dt", 10)]  # before the clock starts


def test_the_best_controller_comes_with_its_provenance() -> None:
    best = best_controller(trained(), scored())
    assert (best.name, best.weights) == ("best", published("dt20").weights)
    provenance = best.provenance
    assert {"command", "config", "seed", "versions", "score", "decisions", "seconds"} <= provenance.keys()
    assert provenance["command"] == "python scripts/train_tetris.py --preset record --device cuda --seed 1"
    assert (provenance["commit"], provenance["machine"]) == ("abc", "NVIDIA Test")
    assert [each["ci95"] for each in provenance["score"]] == [[90.0, 110.0]] * 2
    assert "weights" not in provenance["score"][0]
    assert LinearController.from_dict(json.loads(json.dumps(best.to_dict()))) == best


def test_the_shipped_controller_is_that_of_the_committed_results(tmp_path: Path) -> None:
    results = [
        json.loads((RESULTS / "h200" / f"record_{each}.json").read_text()) for each in ("training", "score")
    ]
    file = tmp_path / "best.json"
    best_controller(results[0], results[1]["data"]).save(file)
    ship_scores(file, json.loads((RESULTS / "h200" / "best_scores.json").read_text())["data"]["measurements"])
    assert json.loads(file.read_text()) == json.loads((CONTROLLERS / "best.json").read_text())


def test_shipped_controllers_carry_their_scores_on_low_boards() -> None:
    found = json.loads((RESULTS / "h200" / "best_scores.json").read_text())["data"]["measurements"]
    for name in SHIPPED:
        scores = json.loads((CONTROLLERS / f"{name}.json").read_text())["provenance"]["score"]
        assert [each for each in scores if each["controller"] == name] == [
            each for each in found if each["controller"] == name
        ]


@pytest.mark.usefixtures("gpu_and_nvcc")
def test_a_step_without_its_files_is_one_line(script: Script) -> None:
    ended = script("measure.record", "score")
    assert ended.status == 2
    assert "expected --training FILE" in ended.err
