"""Run folders damaged at random: one line or a result, never a traceback, and nothing is lost in silence."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
from damaged_runs import Script, trials
from sample_runs import make_run


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "mine", estimated=True)


def test_damaged_runs(script: Script, sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tetris.commands.training_run.draw", lambda training: None)
    monkeypatch.setattr("tetris.report.data.GAME_DECISIONS", 5)
    monkeypatch.chdir(tmp_path)
    found = list(chain.from_iterable(trials(script, sound, tmp_path, 25, 1)))
    assert not found, "\n".join(found)
