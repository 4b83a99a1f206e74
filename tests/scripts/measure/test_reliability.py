"""scripts/measure/reliability.py: what is lost is counted, whatever it is."""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from measure import reliability
from measure.jobs import traceback_in
from measure.provenance import ROOT
from measure.reliability import Trial, Trials, loss
from sample_runs import make_run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "whole")


@pytest.mark.parametrize(
    ("name", "old", "new", "found"),
    [
        ("metrics.jsonl", '"generation": 2', '"generation": 3', "metrics"),
        ("metrics.jsonl", '"seconds": ', '"seconds": 1', ""),
        ("controller.json", '"weights": [', '"weights": [1.5,', "weights"),
        ("controller.json", '"games": ', '"games": 1', "scores"),
    ],
)
def test_a_run_that_differs_in_more_than_time_is_lost(
    whole: Path, tmp_path: Path, name: str, old: str, new: str, found: str
) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    text = (run / name).read_text()
    assert loss(run, whole, "") == ""
    (run / name).write_text(text.replace(old, new, 1))
    assert text != (run / name).read_text()
    assert loss(run, whole, "") == found


def test_a_traceback_of_ours_is_a_loss_and_that_of_torchrun_is_none(whole: Path) -> None:
    frame = 'Traceback (most recent call last):\n  File "{}", line 1, in main\n'
    ours, torchrun = frame.format(ROOT / "tetris" / "game.py"), frame.format("/venv/torch/run.py")
    assert traceback_in(ours)
    assert not traceback_in(torchrun)
    assert loss(whole, whole, ours) == ours


def test_attempts_and_losses_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Trial(seconds=1.5), Trial("weights", 2.5), Trial(hit=False)]
    kinds: dict[str, Callable[[Path], Trials]] = {
        "a": lambda root: iter(found),
        "b": lambda root: iter([Trial()]),
    }
    monkeypatch.setattr(reliability, "KINDS", kinds)
    figures, data, _ = reliability.measure(argparse.Namespace(trials=[]), "cpu")
    assert figures == {
        "reliability.a.attempts": 3,
        "reliability.a.hit": 2,
        "reliability.a.lost": 1,
        "reliability.a.slowest_seconds": 2.5,
        "reliability.b.attempts": 1,
        "reliability.b.hit": 1,
        "reliability.b.lost": 0,
    }
    assert json.loads(json.dumps(data))["a"]["lost"] == ["weights"]
    assert reliability.measure(argparse.Namespace(trials=["b"]), "cpu")[1].keys() == {"b"}


def test_a_damaged_run_is_read_by_every_command(tmp_path: Path) -> None:
    assert not any(trial.lost for trial in reliability.damaged(tmp_path, 3))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        functools.partial(reliability.killed, ranks=1, kills=4),
        functools.partial(reliability.signalled, ranks=1, number=signal.SIGHUP, attempts=4),
        functools.partial(reliability.signalled, ranks=2, number=signal.SIGHUP, attempts=1),
        functools.partial(reliability.full_disk, attempts=3),
        functools.partial(reliability.hung, attempts=1),
    ],
    ids=["killed", "signalled", "signalled-ranks", "full_disk", "hung"],
)
def test_nothing_is_lost(tmp_path: Path, kind: Callable[[Path], Trials]) -> None:
    found = list(kind(tmp_path))
    assert any(trial.hit for trial in found)
    assert not [trial.lost for trial in found if trial.lost]
