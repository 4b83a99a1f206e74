"""scripts/measure/worst_pieces.py: its placements are the game's, its survivals those of a plain search."""

from __future__ import annotations

import argparse

import numpy as np
import pytest
from measure import worst_pieces

from tetris import Rules
from tetris.game import Rows, after_states
from tetris.pieces import PIECES


def number(rows: Rows, rules: Rules) -> int:
    return sum(row << y * rules.width for y, row in enumerate(rows))


def stack(board: int, rules: Rules) -> Rows:
    rows = [board >> y * rules.width & rules.full_row for y in range(rules.height)]
    while rows and not rows[-1]:
        rows.pop()
    return tuple(rows)


@pytest.mark.parametrize("board", ["4x4", "5x4", "6x5"])
def test_placements_are_those_of_the_game(board: str) -> None:
    rules = Rules(*Rules.parse_board(board))
    random = np.random.default_rng(2)
    boards = random.integers(0, 1 << rules.width * rules.height, 40)
    boards &= random.integers(0, 1 << rules.width * rules.height, 40)
    for piece in range(7):
        expected = [
            [
                -1 if after.game_over else number(after.rows, rules)
                for after in after_states(rows, piece, rules)
            ]
            for rows in (stack(int(each), rules) for each in boards)
        ]
        found = [
            worst_pieces.placed(boards, shape, column, rules).tolist()
            for shape in PIECES[piece]
            for column in range(rules.width - shape.width + 1)
        ]
        assert np.array(found).T.tolist() == expected


def lasts(rows: Rows, rules: Rules, most: int, first: int | None) -> int:
    """Return how many pieces can be placed, at most ``most``: the worse of both, or alternating ones."""
    if most == 0:
        return 0
    found = []
    for piece in (worst_pieces._S, worst_pieces._Z) if first is None else (first,):
        then = None if first is None else worst_pieces._S + worst_pieces._Z - first
        after = [each.rows for each in after_states(rows, piece, rules) if not each.game_over]
        found.append(max((1 + lasts(each, rules, most - 1, then) for each in after), default=0))
    return min(found)


def test_survivals_are_those_of_a_plain_search() -> None:
    rules = Rules(5, 4)
    found = worst_pieces.survival(worst_pieces.Game(rules))
    turns = [lasts((), rules, 8, first) for first in (worst_pieces._S, worst_pieces._Z)]
    assert found.alternating[0] == max(turns)
    assert found.adaptive[0] == lasts((), rules, 8, None)


def chance(rows: Rows, rules: Rules, pieces: tuple[int, ...], most: int) -> float:
    """Return the greatest probability to place ``most`` pieces of S and Z, the first of which are known."""
    if most == 0:
        return 1.0
    found = 0.0
    for drawn in (worst_pieces._S, worst_pieces._Z):
        now, *then = (*pieces, drawn)
        after = [each.rows for each in after_states(rows, now, rules) if not each.game_over]
        found += max((chance(each, rules, tuple(then), most - 1) for each in after), default=0.0)
    return found / 2


@pytest.mark.parametrize("next_known", [False, True])
def test_chances_are_those_of_a_plain_search(next_known: bool) -> None:
    rules = Rules(4, 4)
    game = worst_pieces.Game(rules)
    boards = [stack(int(board), rules) for board in game.boards]
    found = worst_pieces.survival(game)
    pieces = [(worst_pieces._S,), (worst_pieces._Z,)] if next_known else [()]
    for n in (1, 3):
        best = [max(chance(rows, rules, first, n) for rows in boards) for first in pieces]
        expected = sum(best) / len(best)
        assert (found.next_known if next_known else found.probabilities)[n - 1] == pytest.approx(expected)


def test_two_lanes_take_s_and_z_in_turns_for_ever() -> None:
    """On four columns S goes to the one pair of columns, Z to the other; five columns have no such way."""
    four, five = (worst_pieces.survival(worst_pieces.Game(Rules(width, 4))) for width in (4, 5))
    assert four.alternating == (None, None)
    assert five.alternating[1] is not None
    assert four.adaptive == (3, 3)


def test_the_bound_is_above_perfect_play() -> None:
    figures, data, _ = worst_pieces.measure(argparse.Namespace(boards=["4x4"]), "cpu")
    (found,) = data["measurements"]
    assert figures["worst_pieces.4x4.bound_lines"] > figures["worst_pieces.4x4.perfect_lines"] > 1
    placed = found["probabilities"][found["ahead"] - 1]
    pieces = found["ahead"] / ((2 / 7) ** found["ahead"] * (1 - placed))
    assert found["bound"] == pytest.approx(pieces)  # four columns: a line a piece
