"""The model card of docs/results.md."""

from __future__ import annotations

from typing import Any

import pytest
from _record_pages import RECORD_BLOCKS, ratio_cell, recipe_text

FILE = "benchmarks/results/h200.json"
ORIGIN = {
    "machine": {"gpu": "NVIDIA Test", "cuda": "13.0"},
    "versions": {"torch": "2.11.0", "python": "3.12"},
    "date": "2026-01-02T03:04:05",
    "sources": "0123456789abcdef",
}
CONFIG = {
    **{"preset": "record", "seed": 1, "curriculum": "10x10:40:3000,10x16:50:128000", "streams": 264},
    **{"population": 512, "elites": 40, "noise": "hyperbolic:0.1"},
}


def measurement(label: str, lines: float, games: int, seconds: float) -> dict[str, Any]:
    return {
        **{"controller": label, "weights": [0.25, -0.75, 0.5], "lines_per_game": lines, "games": games},
        **{
            "ci95": [0.9 * lines, 1.1 * lines],
            "decisions": 200_000_000_000,
            "seconds": seconds,
            "seed": 2013,
        },
        **{"rule": "published", "pieces": "uniform", "estimator": "lines / games ended"},
    }


@pytest.fixture
def report() -> dict[str, Any]:
    """A report with the record."""
    controller = {"features": "dt_small", "weights": [0.25, -0.75, 0.5]}
    return {
        "parts": {
            "record_training": {
                **ORIGIN,
                "figures": {
                    "record.training_seconds": 612.34,
                    "record.training_decisions": 1_100_000_000_000,
                    "record.generations": 130,
                },
                "command": "python scripts/train_tetris.py --preset record --seed 1",
                "commit": "0123456789abcdef0123+",
                "config": CONFIG,
                "feature_names": ["landing_height", "holes", "wells"],
                "controller": controller,
            },
            "record_score": {
                **ORIGIN,
                "figures": {"record.score_decisions": 400_000_000_000},
                "score": [measurement("learned", 240e6, 333, 155.2), measurement("dt20", 50e6, 1600, 62.0)],
                "ratio": {"value": 4.8, "ci95": [4.26, 5.43], "method": "exact: binomial"},
                "beats": True,
            },
        }
    }


def test_the_card_says_what_it_is_how_it_came_about_and_how_good_it_is(report: dict[str, Any]) -> None:
    text = RECORD_BLOCKS["model_card"](report, FILE)
    for line in (
        "| `best`, as it comes with the package |  |",
        "| what it is | linear controller of 3 features (`dt_small`), ten columns |",
        "| hardware | one NVIDIA Test |",
        "| training | 612 s in 130 generations, 1,100,000,000,000 decisions |",
        "| evaluation | 155 s, and 62 s for dt20; 200,000,000,000 decisions each |",
        "| decisions in all | 1,500,000,000,000 |",
        "| lines a game on 10x20 | 240 M [216 M, 264 M], 333 games |",
        "| dt20, in the same run | 50 M [45 M, 55 M], 1,600 games |",
        "| times dt20 | 4.8 [4.26, 5.43] |",
        "| intervals | apart: it is better |",
        "| commit | 0123456789ab with changes |",
        "python scripts/train_tetris.py --preset record --seed 1",
        "python scripts/evaluate_tetris.py best dt20 --board 10x20 --decisions 200000000000 --seed 2013",
    ):
        assert line in text.splitlines()
    assert "exact: binomial" in text
    assert "10x10:40:3000,10x16:50:128000" in text
    assert "(record_learning_curve.png)" in text
    assert text.count("<sub>NVIDIA Test") == 2


def test_the_heaviest_features_stand_first(report: dict[str, Any]) -> None:
    text = RECORD_BLOCKS["model_card"](report, FILE)
    rows = [line for line in text.splitlines() if line.startswith("| `") and "best" not in line]
    assert rows == ["| `holes` | -0.7500 |", "| `wells` | 0.5000 |", "| `landing_height` | 0.2500 |"]


def test_what_does_not_beat_dt20_is_not_said_to_come_with_the_package(report: dict[str, Any]) -> None:
    report["parts"]["record_score"]["beats"] = False
    text = RECORD_BLOCKS["model_card"](report, FILE)
    assert "| intervals | not apart |" in text
    assert "comes with the package" not in text
    assert "--seed 1 --out runs/record\n" in text
    assert "evaluate_tetris.py runs/record dt20" in text


def test_a_controller_that_never_died_has_a_bound(report: dict[str, Any]) -> None:
    report["parts"]["record_score"]["ratio"] |= {"value": None, "ci95": [31.2, None]}
    assert "| times dt20 | > 31.2 |" in RECORD_BLOCKS["model_card"](report, FILE)


@pytest.mark.parametrize(
    ("value", "ci95", "text"),
    [(8.3, [7.13, 9.71], "8.3 [7.13, 9.71]"), (None, [7.13, None], "> 7.13"), (None, [0.0, 0.5], "< 0.5")],
)
def test_a_ratio_stands_with_its_interval_or_the_bound_there_is(
    value: float | None, ci95: list[float | None], text: str
) -> None:
    assert ratio_cell({"value": value, "ci95": ci95}) == text


def test_a_sentence_says_what_comes_with_the_package(report: dict[str, Any]) -> None:
    text = RECORD_BLOCKS["record_sentence"](report, FILE)
    assert "learned from nothing in 10.2 minutes on one NVIDIA Test (`python scripts/train_tetris.py" in text
    assert "has 50 M [45 M, 55 M], 1,600 games in the same run: 4.8 [4.26, 5.43] times as many." in text
    report["parts"]["record_score"]["beats"] = False
    assert RECORD_BLOCKS["record_sentence"](report, FILE) == ""
    assert RECORD_BLOCKS["record_sentence"]({}, FILE) == ""


@pytest.mark.parametrize("missing", ["record_training", "record_score"])
def test_until_both_parts_are_measured_there_is_no_card(report: dict[str, Any], missing: str) -> None:
    del report["parts"][missing]
    assert RECORD_BLOCKS["model_card"](report, FILE) == "Not measured yet."
    assert RECORD_BLOCKS["model_card"]({}, FILE) == "Not measured yet."


def test_a_recipe_says_what_is_split_and_averaged_and_nothing_where_nothing_is() -> None:
    plain = recipe_text(CONFIG)
    assert plain.endswith("population 512, 40 elites, noise hyperbolic:0.1")
    assert "split" not in plain
    text = recipe_text({**CONFIG, "curriculum": "10x10:9:300,10x20:9:300:split", "averaging": 0.005})
    assert "264 streams; split: fitness by importance splitting)" in text
    assert text.endswith("means averaged, most of it over the last 0.5 % of the generations")
