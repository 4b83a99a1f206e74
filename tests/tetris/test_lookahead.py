"""Lookahead: what is chosen."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from engine_games import few_features, weights_for

from tetris import Lookahead, Policy, Rollout, Streams, play_game, published, rollout
from tetris.game.decisions import Rows, Weights, after_states, choose, play, prospect
from tetris.game.features import AfterState, feature_values
from tetris.game.piece_stream import PieceStream
from tetris.game.policy import Player
from tetris.game.rules import Rules
from tetris.record.explanation import decisions

BAR, SQUARE = 0, 1
NAMES = ("landing_height", "holes", "eroded_cells", "row_transitions", "max_height")


def value_of(after: AfterState, weights: Weights, of_placement: bool = False) -> float:
    """The weighted sum, or the part of it that tells of the placement."""
    features = zip(NAMES, weights, feature_values(after, NAMES), strict=True)
    own = ("landing_height", "eroded_cells") if of_placement else NAMES
    return float(sum(weight * value for name, weight, value in features if name in own))


def by_force(rows: Rows, piece: int, weights: Weights, rules: Rules) -> tuple[int, int] | None:
    """Orientation and column by the words of `choose`; None where every placement ends the game."""
    firsts = [after for after in after_states(rows, piece, rules) if not after.game_over]
    ranked = sorted(firsts, key=lambda after: -value_of(after, weights))  # stable: the first of equals first
    most, chosen = (-1, 0.0), None
    for first in ranked[:2]:
        survived, total = 0, 0.0
        for following in rules.piece_set:
            seconds = [a for a in after_states(first.rows, following, rules) if not a.game_over]
            if seconds:
                survived += 1
                total += max(value_of(a, weights) for a in seconds) + value_of(first, weights, True)
        if (survived, total) > most:
            most, chosen = (survived, total), (first.shape.orientation, first.column)
    return chosen


@pytest.mark.parametrize(
    "rules",
    [Rules(4, 4), Rules(4, 7, clear_on_overflow=True), Rules(5, 5, clear_on_overflow=True, pieces="SZ")],
    ids=str,
)
def test_it_is_what_all_next_pieces_tried_by_hand_give(rules: Rules) -> None:
    generator = np.random.default_rng(rules.height)
    compared = changed = 0
    for piece in [*range(7)] * 4:
        weights = (1024 * generator.normal(size=len(NAMES))).round()  # whole, so that sums are exact
        rows = tuple(
            map(int, generator.integers(1, rules.full_row, size=generator.integers(0, rules.height)))
        )
        expected = by_force(rows, piece, weights, rules)
        player = Player(NAMES, weights, Lookahead.EXPECTIMAX)
        chosen = choose(rows, piece, player, rules)
        if expected is not None:
            assert (chosen.shape.orientation, chosen.column) == expected
            compared += 1
            changed += chosen != choose(rows, piece, replace(player, lookahead=Lookahead.NONE), rules)
    assert compared > 15
    assert changed > 0


def test_what_more_pieces_survive_is_chosen(stack: Callable[..., Rows]) -> None:
    # An upright bar goes up to the top: in column 2 five pieces can follow it, at the wall all seven.
    rows, rules = stack(".X..", "X..."), Rules(4, 4)
    player = Player(("max_height",), np.array([100.0]), Lookahead.EXPECTIMAX)
    assert choose(rows, BAR, replace(player, lookahead=Lookahead.NONE), rules).column == 2
    chosen = choose(rows, BAR, player, rules)
    assert (chosen.column, prospect(chosen, player)) == (3, (7, 7 * 400.0))


def test_the_only_placement_and_none_at_all() -> None:
    rules, player = Rules(4, 4), Player(("holes",), np.array([-1.0]), Lookahead.EXPECTIMAX)
    full = (0b0101, 0b1010, 0b0101, 0b1010)
    after = choose(full, SQUARE, player, rules)
    assert (after.shape.orientation, after.column, after.game_over) == (0, 0, True)
    one = (0b0101, 0b1010, 0b0001)  # a bar lies down nowhere, and stands nowhere
    assert choose(one, BAR, player, rules).game_over == all(
        each.game_over for each in after_states(one, BAR, rules)
    )


@pytest.mark.parametrize("lookahead", ["preview", "expectimax"])
def test_a_game_kept_and_a_controller_shown_are_the_games_that_are_played(lookahead: str) -> None:
    controller, rules, pieces = published("dellacherie"), Rules(5, 6), PieceStream(Rules(5, 6), 3, 2)
    game = play_game(controller, 3, rules=rules, stream=2, most_pieces=60, lookahead=lookahead)
    player = controller.player(rules, Lookahead(lookahead))
    _, lines, games, made = play((), pieces, player, rules, 0, len(game.steps))
    assert (game.lines, game.over, len(game.steps)) == (lines, bool(games), made)
    shown = islice(decisions(controller, rules, pieces, Lookahead(lookahead)), made)
    assert [after.rows for after in shown] == [step.rows for step in game.steps]
    assert game.steps != play_game(controller, 3, rules=rules, stream=2, most_pieces=60).steps


def test_who_looks_ahead_plays_longer() -> None:
    # 7.7 and 10.1 lines per game. The ratio has a standard error of a tenth, and is below 1 for one seed in a
    # hundred.
    features, streams = few_features(10), Streams(Rules(10, 4), 32, 1)
    one, ahead = (
        rollout(Policy(weights_for(features, 10, 1), features, each), streams, 200)
        for each in ("none", "expectimax")
    )
    assert ahead.lines / ahead.games > one.lines / one.games
    assert int(ahead.games) > 150


@pytest.mark.parametrize("lookahead", Lookahead)
def test_results_say_it_by_two_keys(lookahead: Lookahead) -> None:
    values = lookahead.to_dict()
    assert Lookahead.from_dict(values) is Lookahead.of(**values) is lookahead
    assert Lookahead.from_dict({}) is Lookahead.NONE


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ((3, False), ValueError, "expected pieces_known from 1 to 2, got 3"),
        ((2, True), ValueError, "expected lookahead with one piece known"),
        ((1, 2), TypeError, "expected lookahead to be a bool, got 2"),
    ],
)
def test_what_it_cannot_be_is_refused(values: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Lookahead.of(*values)
    with pytest.raises(ValueError, match="'far' is not a valid Lookahead"):
        Policy([1.0] * 9, lookahead="far")


def test_a_copied_rollout_looks_ahead() -> None:
    policy = Policy([[-1.0, -1.0]], "holes, max_height", "expectimax")
    games = Rollout(policy, Streams(Rules(4, 6), 1, 4), "python")
    games.advance(3)
    copied = pickle.loads(pickle.dumps(games))
    assert copied.lookahead is Lookahead.EXPECTIMAX
    games.advance(9)
    copied.advance(9)
    assert torch.equal(copied.columns, games.columns)
