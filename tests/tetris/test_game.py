"""How pieces fall, when a game ends, and which placement is chosen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tetris.game.decisions import Weights, after_states, choose, landing_row, place, play, steps
from tetris.game.feature_sets import feature_names
from tetris.game.features import column_heights
from tetris.game.piece_stream import PieceStream
from tetris.game.pieces import PIECES
from tetris.game.policy import Player
from tetris.game.rules import Rules

Stack = Callable[..., tuple[int, ...]]
BAR, SQUARE, TEE = 0, 1, 2


def _weights(*values: float) -> Weights:
    return np.array(values, dtype=np.float64)


def _dt20() -> Weights:
    return _weights(-2.68, 1.38, -2.41, -6.32, 2.03, -2.71, -0.43, -9.48, 0.89)


def test_piece_rests_on_the_column_that_stops_it_first(stack: Stack) -> None:
    heights = column_heights(stack("X...", "X..X", "XX.X"), 4)
    flat, upright, pointing_down = (
        PIECES[BAR][1],
        PIECES[BAR][0],
        PIECES[TEE][3],
    )  # T turned three times: .X./XXX
    assert landing_row(heights, flat, 0) == 3
    assert [landing_row(heights, upright, column) for column in range(4)] == [3, 1, 0, 2]
    assert [landing_row(heights, pointing_down, column) for column in range(2)] == [2, 1]


def test_lines_go_and_what_is_above_moves_down(stack: Stack) -> None:
    rows = stack("..X.", "XXX.", ".XX.", "XXX.")
    after = place(rows, PIECES[BAR][0], 3, 0, Rules(4, 8))
    assert after.rows == stack("..XX", ".XXX")
    assert (after.lines, after.piece_cells_removed, after.game_over) == (2, 2, False)


def test_piece_up_to_the_top_row_does_not_end_the_game() -> None:
    after = place((1, 1, 1, 1), PIECES[BAR][0], 0, 4, Rules(4, 8))
    assert (after.rows, after.game_over) == ((1,) * 8, False)


def test_published_rule_ends_the_game_and_lines_do_not_count(stack: Stack) -> None:
    rows = stack("XXX.", "X.X.", "XXX.", "X.X.")
    after = place(rows, PIECES[BAR][0], 3, 1, Rules(4, 4))
    assert after.rows == stack("...X", "XXXX", "X.XX", "XXXX", "X.X.")
    assert (after.lines, after.piece_cells_removed, after.game_over) == (0, 0, True)


def test_clear_on_overflow_goes_on_where_the_lines_make_room(stack: Stack) -> None:
    rows = stack("XXX.", "X.X.", "XXX.", "X.X.")
    after = place(rows, PIECES[BAR][0], 3, 1, Rules(4, 4, clear_on_overflow=True))
    assert after.rows == stack("...X", "X.XX", "X.X.")
    assert (after.lines, after.game_over) == (2, False)


def test_clear_on_overflow_counts_the_lines_of_the_placement_that_ends_the_game(stack: Stack) -> None:
    rows = stack("XXX.", "X.X.", "X.X.", "X.XX")
    after = place(rows, PIECES[BAR][0], 3, 3, Rules(4, 4, clear_on_overflow=True))
    assert after.rows == stack("...X", "...X", "...X", "X.X.", "X.X.", "X.XX")
    assert (after.lines, after.game_over) == (1, True)


def test_placements_are_tried_by_orientation_and_then_left_to_right() -> None:
    tried = [(after.shape.orientation, after.column) for after in after_states((), TEE, Rules(5, 8))]
    assert tried == [(0, c) for c in range(4)] + [(1, c) for c in range(3)] + [(2, c) for c in range(4)] + [
        (3, c) for c in range(3)
    ]


def test_first_of_equal_placements_is_chosen() -> None:
    after = choose((), BAR, Player(("holes",), _weights(0)), Rules(4, 8))
    assert (after.shape.orientation, after.column) == (0, 0)


def test_greatest_value_is_chosen() -> None:
    after = choose((), BAR, Player(("max_height",), _weights(-1)), Rules(5, 8))
    assert (after.shape.orientation, after.column) == (1, 0)


def test_placement_that_ends_the_game_is_not_preferred_however_good(stack: Stack) -> None:
    rows = stack("XX..", "XX..", "XX..", "XX..")
    after = choose(rows, BAR, Player(("max_height",), _weights(1)), Rules(4, 4))
    assert (after.shape.orientation, after.column, after.game_over) == (0, 2, False)


def test_orientation_0_column_0_is_played_where_every_placement_ends_the_game(stack: Stack) -> None:
    rows = stack("X.X.", ".X.X", "X.X.", ".X.X")
    after = choose(rows, SQUARE, Player(("landing_height",), _weights(-1)), Rules(4, 4))
    assert (after.shape.orientation, after.column, after.game_over) == (0, 0, True)


def test_step_reports_the_decision() -> None:
    (step,) = steps(
        (), [BAR], Player(("max_height", "landing_height"), _weights(-1, -0.5)), Rules(4, 8), 0, 1
    )
    assert step.to_dict() == {
        "piece": 0,
        "orientation": 1,
        "column": 0,
        "lines": 1,
        "landing_row": 0,
        "rows": [],
        "features": [0, 0.0],
        "value": 0.0,
        "game_over": False,
    }


def test_next_game_starts_on_an_empty_board() -> None:
    played = list(steps((), [SQUARE] * 4, Player(("max_height",), _weights(1)), Rules(5, 4), 0, 4))
    assert [step.game_over for step in played] == [False, False, False, False]
    played = list(steps((), [SQUARE] * 5, Player(("column_height_4",), _weights(-1)), Rules(5, 4), 0, 5))
    assert [(step.column, len(step.rows)) for step in played] == [(0, 2), (0, 4), (2, 4), (2, 4), (0, 6)]


@pytest.mark.parametrize("clear_on_overflow", [False, True])
def test_play_counts_what_the_steps_did(clear_on_overflow: bool) -> None:
    rules = Rules(6, 6, clear_on_overflow, "bag")
    pieces = PieceStream(rules, 3, 1)
    player = Player(feature_names("dt"), _dt20())
    played = list(steps((), pieces, player, rules, 0, 300))
    rows, lines, games, made = play((), pieces, player, rules, 0, 300)
    assert games > 2
    assert made == 300
    assert (lines, games) == (sum(step.lines for step in played), sum(step.game_over for step in played))
    assert rows == (() if played[-1].game_over else played[-1].rows)


def test_play_stops_with_the_last_game_it_is_told() -> None:
    rules = Rules(6, 6)
    pieces = PieceStream(rules, 3, 1)
    player = Player(feature_names("dt"), _dt20())
    played = list(steps((), pieces, player, rules, 0, 300))
    ends = [t for t, step in enumerate(played, start=1) if step.game_over]
    assert len(ends) > 2
    for last_game in (1, 2):
        made = ends[last_game - 1]
        lines = sum(step.lines for step in played[:made])
        assert play((), pieces, player, rules, 0, 300, last_game) == (
            (),
            lines,
            last_game,
            made,
        )
    assert play((), pieces, player, rules, 0, 300, 0) == ((), 0, 0, 0)
