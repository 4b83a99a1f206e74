"""What a decision considers beside the piece that falls: a preview, or all pieces that may come
next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from engine_games import EXPECTIMAX, NONE, PREVIEW, few_features, weights_for

from tetris import Lookahead, Policy, Rollout, Streams, rollout
from tetris.game.decisions import Rows, after_states, choose, pair_value, prospect
from tetris.game.features import AfterState, feature_values
from tetris.game.hidden_units import Floats
from tetris.game.piece_stream import PieceStream
from tetris.game.policy import Player
from tetris.game.rules import Rules

Stack = Callable[..., Rows]
BAR, SQUARE, TEE = 0, 1, 2
NAMES = ("landing_height", "holes", "eroded_cells", "row_transitions", "max_height")


def player_of(lookahead: Lookahead, **weights: float) -> Player:
    """Who weighs features by name."""
    return Player(tuple(weights), np.array([*weights.values()]), lookahead)


def value_of(after: AfterState, weights: Floats, of_placement: bool = False) -> float:
    """The weighted sum, or the part of it that tells of the placement."""
    features = zip(NAMES, weights, feature_values(after, NAMES), strict=True)
    own = ("landing_height", "eroded_cells") if of_placement else NAMES
    return float(sum(weight * value for name, weight, value in features if name in own))


def surviving(rows: Rows, piece: int, rules: Rules) -> list[AfterState]:
    return [after for after in after_states(rows, piece, rules) if not after.game_over]


def by_pairs(
    rows: Rows, piece: int, weights: Floats, rules: Rules, after_it: int
) -> AfterState | None:
    """The first placement of the best pair; None where no pair survives."""
    best, chosen = -np.inf, None
    for first in surviving(rows, piece, rules):
        for second in surviving(first.rows, after_it, rules):
            value = value_of(second, weights) + value_of(first, weights, True)
            if value > best:
                best, chosen = value, first
    return chosen


def by_prospects(
    rows: Rows, piece: int, weights: Floats, rules: Rules, _: int
) -> AfterState | None:
    """The placement by the words of `choose`; None where every placement ends the game."""
    firsts = surviving(rows, piece, rules)
    ranked = sorted(
        firsts, key=lambda after: -value_of(after, weights)
    )  # stable: the first of equals first
    most, chosen = (-1, 0.0), None
    for first in ranked[:2]:
        totals = []
        for following in rules.piece_set:
            if seconds := surviving(first.rows, following, rules):
                second = max(value_of(a, weights) for a in seconds)
                totals.append(second + value_of(first, weights, True))
        # The worst piece counts five times.
        rank = (len(totals), sum(totals) + 4 * min(totals, default=0.0))
        if rank > most:
            most, chosen = rank, first
    return chosen


@pytest.mark.parametrize(
    ("lookahead", "by_force"),
    [(PREVIEW, by_pairs), (EXPECTIMAX, by_prospects)],
    ids=["preview", "expectimax"],
)
@pytest.mark.parametrize(
    "rules",
    [
        Rules(4, 4),
        Rules(4, 7, clear_on_overflow=True),
        Rules(5, 5, clear_on_overflow=True, pieces="SZ"),
    ],
    ids=str,
)
def test_it_is_what_all_next_pieces_tried_by_hand_give(
    rules: Rules, lookahead: Lookahead, by_force: Callable[..., AfterState | None]
) -> None:
    generator = np.random.default_rng(rules.height)
    compared = changed = 0
    for piece, after_it in product(range(7), (0, 2, 4, 6)):
        weights = (
            1024 * generator.normal(size=len(NAMES))
        ).round()  # whole, so that sums are exact
        height = generator.integers(0, rules.height)
        rows = tuple(map(int, generator.integers(1, rules.full_row, size=height)))
        player = Player(NAMES, weights, lookahead)
        expected = by_force(rows, piece, weights, rules, after_it)
        chosen = choose(rows, piece, player, rules, after_it)
        if expected is not None:
            assert (chosen.shape, chosen.column) == (expected.shape, expected.column)
            compared += 1
            changed += chosen != choose(rows, piece, replace(player, lookahead=NONE), rules)
    assert compared > 10
    assert changed > 0


def test_a_well_is_kept_open_for_the_bar_that_follows(stack: Stack) -> None:
    rows, rules = stack(".XXXX", ".XXXX"), Rules(5, 8)
    player = player_of(PREVIEW, eroded_cells=1)
    assert [choose(rows, SQUARE, player, rules, each).column for each in (None, BAR)] == [0, 1]


def test_landing_height_and_eroded_cells_count_for_both_and_the_board_once() -> None:
    flat = next(
        after for after in after_states((), BAR, Rules(4, 8)) if after.shape.orientation == 1
    )
    player = player_of(PREVIEW, landing_height=1, eroded_cells=100, max_height=10)
    assert flat.rows == ()
    # A row of four cells goes with the first piece, and the square on the floor is two rows
    # high.
    assert pair_value(flat, SQUARE, player) == 400 + 0.5 + 20
    # The square lands on a bar two rows up.
    low = next(
        after for after in after_states((), BAR, Rules(5, 8)) if after.shape.orientation == 1
    )
    assert pair_value(low, SQUARE, player) == 0 + 1.5 + 30
    assert pair_value(low, BAR, player_of(PREVIEW, landing_height=1)) == 0.5 + 2


def test_where_no_pair_survives_the_next_piece_does_not_count(stack: Stack) -> None:
    rows = stack(
        "XX.X", "X.XX"
    )  # a square comes to rest below the top row, and a bar nowhere after it
    player, rules = player_of(PREVIEW, column_height_2=1), Rules(4, 4)
    assert all(
        pair_value(after, BAR, player) == -np.inf for after in after_states(rows, SQUARE, rules)
    )
    assert choose(rows, SQUARE, player, rules, BAR).column == 1


@pytest.mark.parametrize("lookahead", Lookahead)
def test_where_every_placement_ends_the_game_it_is_the_first(
    stack: Stack, lookahead: Lookahead
) -> None:
    rows = stack("X.X.", ".X.X", "X.X.", ".X.X")
    after = choose(rows, SQUARE, player_of(lookahead, landing_height=-1), Rules(4, 4), BAR)
    assert (after.shape.orientation, after.column, after.game_over) == (0, 0, True)


def test_what_more_pieces_survive_is_chosen(stack: Stack) -> None:
    # An upright bar goes up to the top: in column 2 five pieces can follow it, at the wall all
    # seven.
    rows, rules, player = (
        stack(".X..", "X..."),
        Rules(4, 4),
        player_of(EXPECTIMAX, max_height=100),
    )
    assert choose(rows, BAR, replace(player, lookahead=NONE), rules).column == 2
    chosen = choose(rows, BAR, player, rules)
    assert (chosen.column, prospect(chosen, player)) == (3, (7, 11 * 400.0))


def test_the_more_is_considered_the_longer_games_last() -> None:
    # 7.7, 10.1 and 26.8 lines per game. The ratio of the first two has a standard error of a
    # tenth, and is below 1 for one seed in a hundred; 100 games are within a third of the
    # third, but for one case in a thousand.
    features, streams = few_features(10), Streams(Rules(10, 4), 32, 1)
    weights = weights_for(features, 10, 1)
    none, preview, expectimax = (
        rollout(Policy(weights, features, each), streams, 300) for each in Lookahead
    )
    least = none.lines / none.games
    assert preview.lines / preview.games > 2 * least
    assert expectimax.lines / expectimax.games > least
    assert min(int(preview.games), int(expectimax.games)) > 100


@pytest.mark.parametrize("lookahead", Lookahead)
def test_results_say_it_by_two_keys(lookahead: Lookahead) -> None:
    values = lookahead.to_dict()
    assert Lookahead.from_dict(values) is Lookahead.of(**values) is lookahead
    assert Lookahead.from_dict({}) is NONE


@pytest.mark.parametrize(("pieces_known", "lookahead", "most"), [(3, False, 2), (2, True, 1)])
def test_what_it_cannot_be_is_refused(pieces_known: int, lookahead: bool, most: int) -> None:
    with pytest.raises(
        ValueError, match=f"expected pieces_known from 1 to {most}, got {pieces_known}"
    ):
        Lookahead.of(pieces_known, lookahead)
    with pytest.raises(ValueError, match="'far' is not a valid Lookahead"):
        Policy([1.0] * 9, lookahead="far")


def test_the_known_piece_goes_with_a_board_that_is_copied() -> None:
    rules, player = (
        Rules(4, 8),
        player_of(PREVIEW, holes=-1, max_height=-2, landing_height=-0.5),
    )
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
