"""tetris/game/positions.py: boards and pieces as users write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tetris import Policy, Rules, Streams, play_game, published, rollout
from tetris.game.positions import read_board, read_pieces

RULES = Rules(4, 6)
ROWS = (0b1011, 0b0001)


@pytest.mark.parametrize(
    "board",
    [
        "X...\nXX.X",
        "....\n  T___\n  ZZ0#",
        [[1, 1, 0, 1], [1, 0, 0, 0]],
        np.array([[True, True, False, True], [True, False, False, False]]),
    ],
)
def test_a_board_is_read_from_a_drawing_and_from_an_array(board: Any) -> None:
    assert read_board(board, RULES) == ROWS


@pytest.mark.parametrize(
    ("board", "message"),
    [
        ("X...\nXXX", "rows of the same width, got 4 cells in line 1 and 3 in line 2"),
        ("XY..", "got 'Y' in line 1 of the board"),
        ("X....", "expected rows of 4 cells on 4x6, got 5"),
        ("X...\nXXXX", "expected no full row, .* got row 0 from the bottom"),
        ("X...\n" * 7, "expected a stack that fits on 4x6, got 7 rows"),
        (np.array([[0, 0, 0, 0], [1, 0, 0, 0]]), "row 0 of the array to be the bottom"),
        (np.zeros(4), "numbers with two dimensions, got float64 of shape"),
        ("v115@vhAA", "expected a whole fumen, got a damaged one"),
    ],
)
def test_what_is_no_board_is_an_error_of_one_sentence(board: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_board(board, RULES)


def test_pieces_are_letters_or_numbers_of_the_rules() -> None:
    assert read_pieces("tSz", Rules()) == read_pieces([2, "S", 3], Rules()) == (2, 4, 3)
    for pieces, message in (
        ("TQ", "got 'Q'"),
        ("SZT", "of the source ZS, got T"),
        ("", "none"),
    ):
        with pytest.raises(ValueError, match=message):
            read_pieces(pieces, Rules(pieces="SZ"))


def test_games_begin_on_given_boards() -> None:
    controller, boards = published("dellacherie"), ["XX.XXXXXXX\nXXXX.XXXXX", "X........."]
    streams = Streams(Rules(10, 10), 2, seed=3)
    for one_or_two in (boards, boards[0]):
        results = [
            rollout(controller.policy(), streams, 40, device, boards=one_or_two)
            for device in ("python", "cpu")
        ]
        assert results[0].lines.tolist() == results[1].lines.tolist()
    with pytest.raises(ValueError, match="a board for each of 2 games, got 3"):
        rollout(Policy([1.0], "holes"), streams, 1, "python", boards=["X........."] * 3)


def test_a_game_is_played_with_chosen_pieces_on_a_board() -> None:
    game = play_game("dt20", pieces="IO", board=".XXXXXXXXX")
    assert [step.piece for step in game.steps] == [0, 1]
    assert game.lines == 1
    assert (game.replay().seed, game.replay().boards) == (None, {0: (0b1111111110,)})
    assert [step.rows for step in game.replay().after_states()] == [
        step.rows for step in game.steps
    ]
