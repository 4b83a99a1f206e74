"""tetris/report/evolution.py: the clip of a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sample_runs import make_run

from tetris.report import evolution
from tetris.training.run_folder import load_run
from tetris.view.images import GREY


@pytest.mark.parametrize("device", ["python", "cpu"])
def test_three_generations_play_the_same_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    run = load_run(make_run(tmp_path / "a", curriculum="5x6:9:20"))
    placed: list[Any] = []
    place = evolution._Board.place
    monkeypatch.setattr(
        evolution._Board,
        "place",
        lambda board, piece, *more: (
            placed.append((board._caption, piece)),
            place(board, piece, *more),
        )[1],
    )
    monkeypatch.setattr(
        evolution, "write_gif", lambda path, pictures, speed: placed.append((pictures, speed))
    )
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setattr(evolution, "_PLAY_SECONDS", 0.5)
    evolution.write_evolution(tmp_path / "a.gif", run, device)
    pictures, speed = placed.pop()
    by_board = [[piece for board, piece in placed if board == one] for one in dict(placed)]
    assert list(dict(placed)) == ["generation 1", "generation 3", "generation 9"]
    assert by_board[0] == by_board[1] == by_board[2]
    assert {each.shape for each in pictures} == {pictures[0].shape}
    assert pictures[0].shape[1] >= 800
    assert len(pictures) / speed == pytest.approx(0.5 + 2.5, abs=0.1)
    first = pictures[-1][:, : pictures[-1].shape[1] // 3]
    assert ((first >= GREY) & (first < 2 * GREY)).any(), (
        "the first generation's game is over, and grey"
    )


def test_a_run_of_one_generation_has_a_clip(script: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", curriculum="5x6:1:20")
    ended = script("watch_tetris", run, "--evolution", tmp_path / "a.gif")
    assert (ended.status, ended.err) == (0, "")
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.size[0] >= 800
        assert np.asarray(gif.convert("RGB")).any()
