"""scripts/evaluate_tetris.py: what it plays and prints, and its errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tetris import LinearController, Lookahead, Rules, Score, published
from tetris.evaluation.measurement import Limit, Trial, measure
from tetris.record.score import ESTIMATOR

Script = Callable[..., Any]
QUICK = ("--board", "6x6", "--device", "python", "--json")


def _evaluate(script: Script, *arguments: object) -> list[dict[str, Any]]:
    ended = script("evaluate_tetris", *arguments)
    assert ended.status == 0, ended.err
    measured: list[dict[str, Any]] = json.loads(ended.out)
    return measured


def test_json_holds_everything_that_belongs_to_a_score(script: Script) -> None:
    (measured,) = _evaluate(
        script, "DT-20", *QUICK, "--decisions", 1280, "--seed", 7, "--rule", "clear-on-overflow"
    )
    assert list(measured) == [
        *(
            "controller",
            "features",
            "weights",
            "board",
            "rule",
            "pieces",
            "device",
            "estimator",
        ),
        *("lines_per_game", "ci95", "dispersion", "games", "lines", "decisions", "seconds"),
        *("decisions_per_second", "seed", "pieces_known", "lookahead"),
    ]
    assert measured["controller"] == "dt20"
    assert (measured["features"], measured["weights"]) == (
        "dt",
        list(published("dt20").weights),
    )
    assert (measured["board"], measured["rule"], measured["pieces"]) == (
        "6x6",
        "clear-on-overflow",
        "uniform",
    )
    assert (measured["device"], measured["seed"], measured["estimator"]) == (
        "python",
        7,
        ESTIMATOR,
    )
    score = Score(*(measured[name] for name in ("lines", "games", "decisions", "dispersion")))
    assert score.games > 0
    assert measured["lines_per_game"] == score.lines_per_game
    assert measured["ci95"] == list(score.ci95)
    assert measured["decisions_per_second"] == pytest.approx(
        score.decisions / measured["seconds"]
    )


@pytest.mark.parametrize(
    ("flags", "lookahead", "said"),
    [
        ((), Lookahead.NONE, ""),
        (("--pieces-known", 2), Lookahead.PREVIEW, ", the next one known"),
        (("--lookahead",), Lookahead.EXPECTIMAX, ", lookahead"),
    ],
)
def test_it_looks_ahead_if_asked_to(
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[object, ...],
    lookahead: Lookahead,
    said: str,
) -> None:
    monkeypatch.setattr("tetris.evaluation.measurement.BURN_IN", 1)
    arguments = ("dellacherie", *QUICK, "--decisions", 16, "--seed", 7, *flags)
    (measured,) = _evaluate(script, *arguments)
    trial = Trial("", published("dellacherie"), Rules(6, 6), "python", 7, lookahead)
    played = measure(trial, Limit(decisions=16)).score
    assert (measured["lines"], measured["games"]) == (played.lines, played.games)
    assert lookahead.to_dict().items() <= measured.items()
    table = script("evaluate_tetris", "dellacherie", *QUICK[:-1], "--decisions", 8, *flags)
    assert f"pieces uniform (seed 12345){said}, engine python" in table.out


def test_file_and_run_folder_are_called_as_they_were_given(
    script: Script, tmp_path: Path
) -> None:
    LinearController("holes", (-1.0,), Rules(6, 6), "learned").save(
        tmp_path / "controller.json"
    )
    file = tmp_path / "controller.json"
    measured = _evaluate(script, tmp_path, file, *QUICK, "--decisions", 64)
    assert [each["controller"] for each in measured] == [str(tmp_path), str(file)]
    assert measured[0]["lines"] == measured[1]["lines"]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_gpu_scores_as_the_cpu_does(script: Script) -> None:
    arguments = ("dt20", "--board", "10x8", "--games", 2000, "--json")
    gpu, cpu = (
        _evaluate(script, *arguments, "--device", device)[0] for device in ("cuda", "cpu")
    )
    assert [gpu[key] for key in ("lines", "games", "decisions")] == [
        cpu[key] for key in ("lines", "games", "decisions")
    ]
