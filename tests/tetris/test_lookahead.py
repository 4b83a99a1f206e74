"""Lookahead: what is chosen, and that all engines choose it, bit for bit."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from engine_games import assert_equal, engines_and_avx2, weights_for

from tetris import play_game, published, rollout
from tetris.features import AfterState, feature_values
from tetris.game import Rows, Weights, after_states, choose, play, prospect
from tetris.rollouts import Rollout
from tetris.rules import Rules
from tetris.splitting import split_rollout

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


@pytest.mark.parametrize("pieces", ["uniform", "SZ"])
@pytest.mark.parametrize("clear_on_overflow", [False, True])
@pytest.mark.parametrize("board", [(4, 4), (4, 7), (5, 5)], ids=lambda board: f"{board[0]}x{board[1]}")
def test_it_is_what_all_next_pieces_tried_by_hand_give(
    board: tuple[int, int], clear_on_overflow: bool, pieces: str
) -> None:
    rules = Rules(*board, clear_on_overflow=clear_on_overflow, pieces=pieces)
    generator = np.random.default_rng(board[1])
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


def engines(
    weights: torch.Tensor, rules: Rules, streams: int, *, python: bool = True, **options: Any
) -> list[Rollout]:
    """The same games by every engine, the lanes of AVX2 included where the processor has them."""
    found = engines_and_avx2(weights, rules, streams, 5, features="dt", lookahead=True, **options)
    return found[0 if python else 1 :]


@pytest.mark.parametrize(
    "rules",
    [
        Rules(10, 20),
        Rules(10, 10, clear_on_overflow=True, pieces="bag"),
        Rules(4, 4, clear_on_overflow=True),
        Rules(4, 4, pieces="bag"),
        Rules(5, 6, original=True),
        Rules(7, 13, clear_on_overflow=True, pieces="SZ"),
    ],
    ids=str,
)
def test_cpu_plays_as_python_does(rules: Rules) -> None:
    assert_equal(*engines(weights_for("dt", rules.width), rules, 1), decisions=15)


def test_scores_at_the_limits_are_decided_alike() -> None:
    weights = torch.full((2, 9), 3e38)
    weights[1, ::2] *= -1
    assert_equal(*engines(weights, Rules(6, 7), 1), decisions=20)


@pytest.mark.parametrize("clear_on_overflow", [False, True])
@pytest.mark.parametrize(
    "board", [(10, 20), (10, 12), (10, 11), (6, 22), (5, 6)], ids=lambda board: f"{board[0]}x{board[1]}"
)
def test_lanes_of_every_width_agree_for_long(board: tuple[int, int], clear_on_overflow: bool) -> None:
    rules = Rules(*board, clear_on_overflow=clear_on_overflow)
    assert_equal(*engines(weights_for("dt", board[0], 5), rules, 2, python=False), decisions=400)


@pytest.mark.parametrize("height", [3, 7, 8, 10, 11, 12, 15, 20])
def test_tall_stacks_agree(height: int) -> None:
    # Two upright pieces on the stack make the well beside them eight cells deeper than the stack is high.
    weights = torch.randn(6, 9, generator=torch.Generator().manual_seed(height))
    games = engines(weights, Rules(10, 24, pieces="IT"), 2)
    for game in games:
        game._columns[:] = (1 << height) - 1
        game._columns[:, 0, 0] = game._columns[:, 1, 4] = 0
    assert_equal(*games, decisions=3)


def test_who_looks_ahead_plays_longer() -> None:
    # 617 and 1,590 lines a game; 80 games are within a third of it, but for one case in three hundred.
    one, ahead = (
        rollout([published("dt20").weights], Rules(10, 8), 64, 10_000, 1, lookahead=each)
        for each in (False, True)
    )
    assert ahead.lines / ahead.games > 1.6 * one.lines / one.games
    assert int(ahead.games) > 80


def test_splitting_estimates_what_is_played() -> None:
    # Rates of 2.5e-4: the standard errors of play and estimate are 5 % and 6 %.
    weights, rules = published("dt20").weights, Rules(10, 8)
    played = rollout([weights], rules, 256, 6000, 1, lookahead=True)
    split = split_rollout([weights] * 12, rules, 256, 803, 2, share_streams=False, lookahead=True).rate
    assert float(split.mean()) * float(played.decisions / played.games) == pytest.approx(1, abs=0.25)


def test_it_is_refused_with_the_next_piece_known_and_as_a_number() -> None:
    with pytest.raises(ValueError, match="expected lookahead with one piece known"):
        rollout([[1.0] * 9], device="python", pieces_known=2, lookahead=True)
    with pytest.raises(ValueError, match="expected lookahead with one piece known"):
        play_game("dt20", pieces_known=2, lookahead=True)
    bad: Any = 2
    with pytest.raises(TypeError, match="expected lookahead to be a bool, got 2"):
        rollout([[1.0] * 9], device="python", lookahead=bad)


def test_a_copied_rollout_looks_ahead() -> None:
    games = Rollout([published("dt20").weights], Rules(10, 6), 3, 4, lookahead=True)
    games.advance(30)
    copied = pickle.loads(pickle.dumps(games))
    games.advance(300)
    copied.advance(300)
    assert torch.equal(copied.columns, games.columns)
