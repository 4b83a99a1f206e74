"""The next piece known: what is chosen."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from engine_games import few_features, weights_for

from tetris import Policy, Rollout, Streams, rollout
from tetris.game.decisions import (
    Rows,
    Weights,
    after_states,
    choose,
    landing_row,
    pair_value,
    piece_after,
    place,
    steps,
)
from tetris.game.features import AfterState, feature_values
from tetris.game.piece_stream import PieceStream
from tetris.game.pieces import PIECES
from tetris.game.policy import Lookahead, Player
from tetris.game.rules import Rules

Stack = Callable[..., tuple[int, ...]]
BAR, SQUARE, TEE = 0, 1, 2


def player_of(**weights: float) -> Player:
    """Who weighs features by name, and knows the next piece."""
    return Player(tuple(weights), np.array([*weights.values()]), Lookahead.PREVIEW)


def played(rows: Rows, piece: int, rules: Rules) -> list[AfterState]:
    """Every placement, one by one."""
    found = []
    for shape in PIECES[piece]:
        for column in range(rules.width - shape.width + 1):
            heights = [
                max([y + 1 for y, row in enumerate(rows) if row >> x & 1], default=0) for x in range(10)
            ]
            found.append(place(rows, shape, column, landing_row(heights, shape, column), rules))
    return found


def by_force(
    rows: Rows, piece: int, after_it: int, weights: Weights, names: tuple[str, ...], rules: Rules
) -> Any:
    """The first placement of the best pair, orientation and column; None where no pair survives."""
    best, chosen = -np.inf, None
    for first in played(rows, piece, rules):
        for second in [] if first.game_over else played(first.rows, after_it, rules):
            if second.game_over:
                continue
            value, own = np.float64(0), np.float64(0)
            for name, weight in zip(names, weights, strict=True):
                value += weight * np.float64(feature_values(second, (name,))[0])
                if name in ("landing_height", "eroded_cells"):
                    own += weight * np.float64(feature_values(first, (name,))[0])
            if value + own > best:
                best, chosen = value + own, (first.shape.orientation, first.column)
    return chosen


@pytest.mark.parametrize("rules", [Rules(4, 4), Rules(4, 7, clear_on_overflow=True)], ids=str)
def test_it_is_what_every_pair_tried_by_hand_gives(rules: Rules) -> None:
    names = ("landing_height", "holes", "eroded_cells", "row_transitions", "max_height")
    generator = np.random.default_rng(rules.height)
    compared = 0
    for piece, after_it in product(range(7), range(7)):
        weights = (1024 * generator.normal(size=len(names))).round()  # whole, so that sums are exact
        rows = tuple(
            map(int, generator.integers(1, rules.full_row, size=generator.integers(0, rules.height)))
        )
        expected = by_force(rows, piece, after_it, weights, names, rules)
        chosen = choose(rows, piece, Player(names, weights, Lookahead.PREVIEW), rules, after_it)
        if expected is not None:
            assert (chosen.shape.orientation, chosen.column) == expected
            compared += 1
    assert compared > 20


def test_a_well_is_kept_open_for_the_bar_that_follows(stack: Stack) -> None:
    rows, rules = stack(".XXXX", ".XXXX"), Rules(5, 8)
    player = player_of(eroded_cells=1)
    chosen = [choose(rows, SQUARE, player, rules, each).column for each in (None, BAR)]
    assert chosen == [0, 1]


def test_landing_height_and_eroded_cells_count_for_both_and_the_board_once() -> None:
    flat = next(after for after in after_states((), BAR, Rules(4, 8)) if after.shape.orientation == 1)
    player = player_of(landing_height=1, eroded_cells=100, max_height=10)
    assert flat.rows == ()
    # A row of four cells goes with the first piece, and the square on the floor is two rows high.
    assert pair_value(flat, SQUARE, player) == 400 + 0.5 + 20
    # The square lands on a bar two rows up.
    low = next(after for after in after_states((), BAR, Rules(5, 8)) if after.shape.orientation == 1)
    assert pair_value(low, SQUARE, player) == 0 + 1.5 + 30
    assert pair_value(low, BAR, player_of(landing_height=1)) == 0.5 + 2


def test_the_first_of_equal_pairs_is_chosen() -> None:
    after = choose((), TEE, player_of(holes=0), Rules(4, 8), BAR)
    assert (after.shape.orientation, after.column) == (0, 0)


def test_where_no_pair_survives_the_next_piece_does_not_count(stack: Stack) -> None:
    rows = stack("XX.X", "X.XX")  # a square comes to rest below the top row, and a bar nowhere after it
    player, rules = player_of(column_height_2=1), Rules(4, 4)
    assert all(pair_value(after, BAR, player) == -np.inf for after in after_states(rows, SQUARE, rules))
    assert choose(rows, SQUARE, player, rules, BAR).column == 1


def test_where_every_placement_ends_the_game_it_is_the_first(stack: Stack) -> None:
    rows = stack("X.X.", ".X.X", "X.X.", ".X.X")
    after = choose(rows, SQUARE, player_of(landing_height=-1), Rules(4, 4), BAR)
    assert (after.shape.orientation, after.column, after.game_over) == (0, 0, True)


def test_the_last_piece_of_a_list_is_placed_without_a_next_one() -> None:
    assert [piece_after([BAR, SQUARE], t) for t in (0, 1)] == [SQUARE, None]
    *_, last = steps((), [SQUARE, BAR], player_of(holes=-1), Rules(4, 8), 0, 2)
    assert last.piece == BAR


def test_who_knows_the_next_piece_plays_longer() -> None:
    # 7.7 and 26.8 lines per game; 100 games are within a third of it, but for one case in a thousand.
    features, streams = few_features(10), Streams(Rules(10, 4), 32, 1)
    one, two = (
        rollout(Policy(weights_for(features, 10, 1), features, each), streams, 300)
        for each in ("none", "preview")
    )
    assert two.lines / two.games > 2 * one.lines / one.games
    assert int(two.games) > 100


def test_the_known_piece_goes_with_a_board_that_is_copied() -> None:
    rules, player = Rules(4, 8), player_of(holes=-1, max_height=-2, landing_height=-0.5)
    policy = Policy(player.weights, ",".join(player.names), "preview")
    games = Rollout(policy, Streams(rules, 3, 7), "python")
    games.advance(6)
    boards = [tuple(row for row in board if row) for board in games.boards[0].tolist()]
    pieces = [PieceStream(rules, 7, stream) for stream in range(3)]
    assert len({each[6] for each in pieces}) == 3
    games.branch(torch.tensor([[1, 2, 0]]))
    games.branch(torch.tensor([[1, 1, 2]]))  # now of streams 2, 2 and 0
    games.advance(2)
    for stream, source in enumerate((2, 2, 0)):
        rows = boards[source]
        for falls, after_it in ((pieces[source][6], 7), (pieces[stream][7], 8)):
            rows = choose(rows, falls, player, rules, pieces[stream][after_it]).rows
        assert tuple(row for row in games.boards[0, stream].tolist() if row) == rows
