"""The picture of docs/limits.md: which scores it shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import limits_pictures

from tetris import Rules


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    limits_pictures.draw_limits_pictures(tmp_path)
    assert (tmp_path / "limits_heights.png").read_bytes().startswith(b"\x89PNG")


def test_every_height_is_shown_and_the_score_of_most_games() -> None:
    found = limits_pictures.lines_by_height()
    for name in ("dt20", "best"):
        played, estimated = found[name, "unknown"]
        assert {*played, *estimated} == set(range(4, 21))
        assert all("games" in each for each in played.values())
        assert not any("games" in each for each in estimated.values())
    assert found["dt20", "unknown"][0][10]["device"] == "cuda"  # more games than on a CPU
    assert found["best", "unknown"][0][20]["games"] == 58  # the run of the record


def test_more_rows_more_lines() -> None:
    for scores in limits_pictures.lines_by_height().values():
        for each in scores:
            lines = [score["lines_per_game"] for score in each.values()]
            assert lines == sorted(lines)


def test_perfect_play_is_between_the_controller_and_the_bound() -> None:
    found = limits_pictures.narrow_boards()
    assert {Rules.parse_board(board) for board in ("4x8", "5x6", "6x5")} <= set(found["perfect1"])
    for board, lines in found["dt20"].items():
        assert lines < found["perfect1"][board] < found["perfect2"].get(board, float("inf"))
        assert found["perfect1"][board] < found["bound"].get(board, float("inf"))
