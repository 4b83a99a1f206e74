"""Lookahead: what is chosen."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from engine_games import few_features, weights_for

from tetris import play_game, published, rollout
from tetris.game.decisions import Rows, Weights, after_states, choose, play, prospect
from tetris.game.features import AfterState, feature_values
from tetris.game.rules import Rules
from tetris.play.rollouts import Rollout

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
        chosen = choose(rows, piece, weights, NAMES, rules, lookahead=True)
        if expected is not None:
            assert (chosen.shape.orientation, chosen.column) == expected
            compared += 1
            changed += chosen != choose(rows, piece, weights, NAMES, rules)
    assert compared > 15
    assert changed > 0


def test_what_more_pieces_survive_is_chosen(stack: Callable[..., Rows]) -> None:
    # An upright bar goes up to the top: in column 2 five pieces can follow it, at the wall all seven.
    rows, rules, weights, names = stack(".X..", "X..."), Rules(4, 4), np.array([100.0]), ("max_height",)
    assert choose(rows, BAR, weights, names, rules).column == 2
    chosen = choose(rows, BAR, weights, names, rules, lookahead=True)
    assert (chosen.column, prospect(chosen, weights, names)) == (3, (7, 7 * 400.0))


def test_the_only_placement_and_none_at_all() -> None:
    rules, weights, names = Rules(4, 4), np.array([-1.0]), ("holes",)
    full = (0b0101, 0b1010, 0b0101, 0b1010)
    after = choose(full, SQUARE, weights, names, rules, lookahead=True)
    assert (after.shape.orientation, after.column, after.game_over) == (0, 0, True)
    one = (0b0101, 0b1010, 0b0001)  # a bar lies down nowhere, and stands nowhere
    assert choose(one, BAR, weights, names, rules, lookahead=True).game_over == all(
        each.game_over for each in after_states(one, BAR, rules)
    )


def test_a_game_kept_is_the_game_that_is_played() -> None:
    controller, rules = published("dellacherie"), Rules(5, 6)
    game = play_game(controller, 3, rules=rules, stream=2, most_pieces=60, lookahead=True)
    names, weights = controller.names_on(rules), controller.played_weights
    _, lines, games, made = play((), weights, names, rules, 3, 2, 0, len(game.steps), lookahead=True)
    assert (game.lines, game.over, len(game.steps)) == (lines, bool(games), made)
    assert game.steps != play_game(controller, 3, rules=rules, stream=2, most_pieces=60).steps


def test_who_looks_ahead_plays_longer() -> None:
    # 7.7 and 10.1 lines per game. The ratio has a standard error of a tenth, and is below 1 for one seed in a
    # hundred.
    features = few_features(10)
    one, ahead = (
        rollout(weights_for(features, 10, 1), Rules(10, 4), 32, 200, 1, features=features, lookahead=each)
        for each in (False, True)
    )
    assert ahead.lines / ahead.games > one.lines / one.games
    assert int(ahead.games) > 150


def test_it_is_refused_with_the_next_piece_known_and_as_a_number() -> None:
    with pytest.raises(ValueError, match="expected lookahead with one piece known"):
        rollout([[1.0] * 9], device="python", pieces_known=2, lookahead=True)
    with pytest.raises(ValueError, match="expected lookahead with one piece known"):
        play_game("dt20", pieces_known=2, lookahead=True)
    bad: Any = 2
    with pytest.raises(TypeError, match="expected lookahead to be a bool, got 2"):
        rollout([[1.0] * 9], device="python", lookahead=bad)


def test_a_copied_rollout_looks_ahead() -> None:
    games = Rollout([[-1.0, -1.0]], Rules(4, 6), 1, 4, "python", features="holes, max_height", lookahead=True)
    games.advance(3)
    copied = pickle.loads(pickle.dumps(games))
    assert copied.lookahead
    games.advance(9)
    copied.advance(9)
    assert torch.equal(copied.columns, games.columns)
