"""What README and docs say of the CUDA engine: the figures of a report, or that there are none yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import render_figures
from _engine_pages import ENGINE_BLOCKS

ROLLOUT, TRAIN = "rollout.cuda.{}.10x20.decisions_per_second", "train.{}"


@pytest.fixture
def report() -> dict[str, Any]:
    """A report of a GPU on which the engine was measured."""
    origin = {
        "machine": {"gpu": "NVIDIA Test", "cuda": "13.0", "processor": "Test CPU", "cores": 16},
        "versions": {"torch": "2.11.0", "python": "3.12"},
        "date": "2026-01-02T03:04:05",
        "sources": "0123456789abcdef",
    }
    learned = {"controller": "learned", "lines_per_game": 48.2e6, "ci95": [44.1e6, 52.6e6], "games": 500}
    return {
        "parts": {
            "rollout": {
                **origin,
                "figures": {
                    ROLLOUT.format("dt"): 3.0456e9,
                    "rollout.cuda.single_game.us_per_decision": 2.5,
                    ROLLOUT.format("bertsekas"): 4.1e9,
                    "rollout.cpu.dt.10x20.decisions_per_second_per_core": 7e6,
                    "rollout.cpu.dt.10x20.decisions_per_second_all": 9.9e7,
                },
                "controllers": {"dt20": ["x"] * 9, "bertsekas": ["x"] * 21},
            },
            "equality": {
                **origin,
                "figures": {
                    "equality.decisions": 733_502_000,
                    "equality.configurations": 200,
                    "equality.differences": 0,
                },
            },
            "training": {
                **origin,
                "figures": {"train.total_seconds": 41.26, "train.gpu_busy_fraction": 0.9512},
                "training_seconds": 36.54,
                "decisions": 72_049_824_000,
                "gpu": {"longest_gap": 0.0123},
                "score": [learned, {**learned, "lines_per_game": 51e6, "games": 1}],
                "goal": 45e6,
                "reached": True,
                "config": {"preset": "quick", "features": "dt", "seed": 1},
            },
        }
    }


def test_the_speeds_stand_side_by_side(report: dict[str, Any]) -> None:
    table = ENGINE_BLOCKS["rollout"](report, "file.json").splitlines()
    assert table[2:7] == [
        "| CUDA, dt20 (9 features) | 3,050,000,000 |",
        "| CUDA, bertsekas (21 features) | 4,100,000,000 |",
        "| CUDA, dt20, a single game: 2.5 us a decision | 400,000 |",
        "| C++, dt20, one core of Test CPU | 7,000,000 |",
        "| the same, 16 cores | 99,000,000 |",
    ]
    assert "NVIDIA Test" in table[-1]
    sentence = ENGINE_BLOCKS["rollout_sentence"](report, "file.json")
    assert "3.05 billion decisions a second, as many as 435 cores of the processor beside it." in sentence


def test_what_was_played_with_the_same_result_is_counted(report: dict[str, Any]) -> None:
    text = ENGINE_BLOCKS["equality"](report, "file.json")
    assert "733,502,000 decisions in 200 configurations" in text
    assert "boards that differ: 0." in text


@pytest.mark.parametrize(("reached", "word"), [(True, "reached"), (False, "missed")])
def test_training_is_told_with_its_interval(report: dict[str, Any], reached: bool, word: str) -> None:
    report["parts"]["training"]["reached"] = reached
    text = ENGINE_BLOCKS["gpu_training"](report, "file.json")
    for row in (
        "| the process, from its start to the controller | 41.3 s |",
        "| time in which a kernel runs | 95.1% |",
        "| longest time without one | 12.3 ms |",
        "| learned controller, lines a game on 10x20 | 48.2 M [44.1 M, 52.6 M], 500 games |",
        f"| the goal of 45 million lines | {word} |",
    ):
        assert row in text
    sentence = ENGINE_BLOCKS["training_sentence"](report, "file.json")
    assert (
        "has, 41 s after its start, learned a controller of the features `dt` that has 48.2 M [44.1 M"
        in sentence
    )


def test_pages_say_that_nothing_was_measured_and_the_readme_says_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(render_figures, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("".join(f"<!-- begin: {name} -->\n<!-- end: {name} -->\n" for name in ENGINE_BLOCKS))
    for gpu in (None, {"parts": {}}):
        blocks = render_figures.rendered(page, {}, gpu).split("<!-- end")[:-1]
        texts = [block.rpartition("-->\n")[2].strip() for block in blocks]
        assert texts == ["Not measured yet."] * 3 + [""] * 2
