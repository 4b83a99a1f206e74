"""tetris/view/game_view.py: the piece of each cell, and the counts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from sample_scenes import sample_scenes

from tetris import Rules, Streams, published, rollout
from tetris.game.positions import stack_rows
from tetris.view.game_view import GameTracker


def as_rows(cells: np.ndarray) -> tuple[int, ...]:
    return stack_rows(
        [sum(1 << x for x, cell in enumerate(row) if cell) for row in cells.tolist()]
    )


@pytest.mark.parametrize(
    "rules", [Rules(6, 6), Rules(5, 7, clear_on_overflow=True, pieces="bag")]
)
def test_cells_are_those_of_the_game(rules: Rules) -> None:
    shown = sample_scenes(rules, 250)
    assert all(as_rows(scene.cells) == scene.rows for scene in shown)
    for scene, following in pairwise(shown):
        assert following.rows == (() if scene.after.game_over else scene.after.rows)
        assert scene.next_piece == following.after.shape.piece
        assert len(scene.full) == scene.after.lines
    assert [scene.pieces for scene in shown] == list(range(1, 251))


def test_a_stack_tells_which_placement_led_to_it() -> None:
    tracker, shown = GameTracker(Rules(6, 8)), sample_scenes(Rules(6, 8), 12)
    for scene, following in pairwise(shown):
        assert tracker.follow(scene.after.shape.piece, following.rows) is not None
        assert (tracker.cells == following.cells).all()
    assert tracker.lines > 0
    assert tracker.follow(0, (1,)) is None


def test_counts_are_those_of_the_engine() -> None:
    rules = Rules(6, 6)
    last = sample_scenes(rules, 250)[-1]
    played = rollout(published("dt20").policy(), Streams(rules, seed=3), 250)
    assert (last.lines, last.games + last.after.game_over) == (
        played.lines.item(),
        played.games.item(),
    )
    assert 0 < last.game_lines < last.lines


def test_a_cell_remembers_its_piece() -> None:
    rules = Rules(10, 20)
    first, second = sample_scenes(rules, 2)
    assert (first.cells == 0).all()
    assert (np.unique(second.cells) == [0, first.after.shape.piece + 1]).all()
    assert (second.cells > 0).sum() == 4
