"""tetris/training/run_record.py: a run as it was read from its folder."""

from __future__ import annotations

from pathlib import Path

from sample_runs import make_run

from tetris import LinearController, play_game, resolve
from tetris.training import load_run


def test_a_run_is_shown_in_a_line(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "mine"))
    assert repr(run) == "<RunRecord mine: holes,max_height, population 4, seed 3, on 5x6, 3 generations>"


def test_a_run_is_taken_for_its_controller(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "mine"))
    assert LinearController.load(run) == resolve(run) == LinearController.load(tmp_path / "mine")
    assert play_game(run, most_pieces=5).controller == run.controller
