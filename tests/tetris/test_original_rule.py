"""The original game's rule: after a landing the next piece has to appear inside the board."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from tetris import Lookahead, Rollout, Rules, Streams, published
from tetris.game.decisions import appears, choose, place, play, with_next
from tetris.game.pieces import PIECES
from tetris.game.policy import Player
from tetris.record.replay import Replay
from tetris.solver import solve

Stack = Callable[..., tuple[int, ...]]
BAR, SQUARE, TEE = 0, 1, 2
SMALL = Rules(4, 4, original=True)
DT20 = published("dt20")


@pytest.mark.parametrize(
    ("piece", "drawing", "expected"),
    [
        (TEE, ("X.XX", "X..X", "X.XX", "XXX."), True),
        (TEE, (".X..", "....", "....", "...."), False),
        (TEE, ("....", "....", ".X..", "...."), False),
        (TEE, ("....", "....", "..X.", "...."), True),
        (SQUARE, ("X..X", "X..X", "XXX.", "XXX."), True),
        (SQUARE, ("..X.", "....", "....", "...."), False),
        (BAR, ("X.XX", "X.XX", "X.XX", "X.XX"), True),
        (BAR, ("....", "....", "....", ".X.."), False),
    ],
)
def test_a_piece_appears_where_none_of_its_cells_is_full(
    stack: Stack, piece: int, drawing: tuple[str, ...], expected: bool
) -> None:
    assert appears(stack(*drawing), piece, SMALL) == expected


def test_it_appears_in_the_middle_columns() -> None:
    for width, piece, column in (
        (10, BAR, 4),
        (10, SQUARE, 4),
        (9, SQUARE, 3),
        (10, 6, 3),
        (4, 6, 0),
    ):
        shape, rules = PIECES[piece][0], Rules(width, 8, original=True)
        taken = {
            c
            for c in range(width)
            if not appears((0,) * (8 - shape.height) + (1 << c,) * shape.height, piece, rules)
        }
        assert taken == set(range(column, column + shape.width))


def test_lines_go_first_and_count_where_the_next_piece_does_not_appear(stack: Stack) -> None:
    rows = stack("XX..", "XXX.")
    after = place(rows, PIECES[BAR][0], 3, 0, SMALL)
    assert (after.lines, after.game_over) == (1, False)
    assert with_next(after, SQUARE) == with_next(after, None) == after
    assert with_next(after, BAR) == replace(after, game_over=True)
    player = Player(("landing_height",), np.array([-1.0]))
    first, second = play([BAR, BAR], player, SMALL, rows)
    assert (first.column, first.lines, first.game_over, first.rows) == (3, 1, True, after.rows)
    assert (second.column, second.game_over) == (
        0,
        False,
    )  # on the empty board; no piece of the list follows


def test_who_knows_the_next_piece_leaves_room_for_it() -> None:
    player = Player(("max_height",), np.array([1.0]), Lookahead.PREVIEW)
    columns = [
        choose((), SQUARE, player, rules, known).column
        for rules, known in ((Rules(4, 4), BAR), (SMALL, BAR), (SMALL, None))
    ]
    # On columns 0 and 1, or 1 and 2, the square is where the bar appears: in column 1.
    assert columns == [0, 2, 0]


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_a_board_is_copied_with_its_next_piece(device: str) -> None:
    for original in (True, False):
        games = Rollout(DT20.policy(), Streams(Rules(10, 20, original=original), 2, 4), device)
        games.play_on(6)
        games.branch(torch.tensor([[0, 0]]))
        games.play_on(1)
        assert torch.equal(games.boards[0, 0], games.boards[0, 1]) == original


def test_a_replay_without_a_seed_does_not_know_the_piece_after_it() -> None:
    with pytest.raises(
        ValueError, match="expected a seed and a stream by the original rule, got neither"
    ):
        Replay(SMALL, bytes([0]), 0, 0)


def test_what_has_no_such_rule_says_so() -> None:
    with pytest.raises(
        ValueError, match="expected the rule to be published or clear-on-overflow, got original"
    ):
        solve(SMALL)
