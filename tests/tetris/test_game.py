"""How pieces fall, when a game ends, and which placement is chosen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tetris.game.decisions import after_states, choose, landing_row, place, play
from tetris.game.features import column_heights
from tetris.game.hidden_units import Floats
from tetris.game.pieces import PIECES
from tetris.game.policy import Player
from tetris.game.rules import Rules

Stack = Callable[..., tuple[int, ...]]
BAR, SQUARE, TEE = 0, 1, 2


def _weights(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def test_piece_rests_on_the_column_that_stops_it_first(stack: Stack) -> None:
    heights = column_heights(stack("X...", "X..X", "XX.X"), 4)
    flat, upright = PIECES[BAR][1], PIECES[BAR][0]
    pointing_down = PIECES[TEE][3]  # T turned three times: .X./XXX
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


def test_clear_on_overflow_counts_the_lines_of_the_placement_that_ends_the_game(
    stack: Stack,
) -> None:
    rows = stack("XXX.", "X.X.", "X.X.", "X.XX")
    after = place(rows, PIECES[BAR][0], 3, 3, Rules(4, 4, clear_on_overflow=True))
    assert after.rows == stack("...X", "...X", "...X", "X.X.", "X.X.", "X.XX")
    assert (after.lines, after.game_over) == (1, True)


def test_placements_are_tried_by_orientation_and_then_left_to_right() -> None:
    tried = [
        (after.shape.orientation, after.column) for after in after_states((), TEE, Rules(5, 8))
    ]
    assert tried == [(0, c) for c in range(4)] + [(1, c) for c in range(3)] + [
        (2, c) for c in range(4)
    ] + [(3, c) for c in range(3)]


def test_the_first_of_the_greatest_values_is_chosen() -> None:
    for names, weight, chosen in ((("holes",), 0, (0, 0)), (("max_height",), -1, (1, 0))):
        after = choose((), BAR, Player(names, _weights(weight)), Rules(5, 8))
        assert (after.shape.orientation, after.column) == chosen


def test_placement_that_ends_the_game_is_not_preferred_however_good(stack: Stack) -> None:
    rows = stack("XX..", "XX..", "XX..", "XX..")
    after = choose(rows, BAR, Player(("max_height",), _weights(1)), Rules(4, 4))
    assert (after.shape.orientation, after.column, after.game_over) == (0, 2, False)


def test_the_next_game_starts_on_an_empty_board() -> None:
    player, rules = Player(("column_height_4",), _weights(-1)), Rules(5, 4)
    played = list(play([SQUARE] * 6, player, rules))
    assert [(after.column, len(after.rows), after.game_over) for after in played] == [
        *((0, 2, False), (0, 4, False), (2, 4, False), (2, 4, False)),
        *((0, 6, True), (0, 2, False)),
    ]
    later = list(
        play(
            [BAR, BAR, TEE, SQUARE], player, rules, played[1].rows, start=2, first_piece=SQUARE
        )
    )
    assert later[0] == played[2]
    assert [after.shape.piece for after in later] == [SQUARE, SQUARE]
