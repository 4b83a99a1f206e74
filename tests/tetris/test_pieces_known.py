"""The next piece known: what is chosen, and that all engines choose it, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from engine_games import assert_equal, engines_and_avx2, weights_for

from tetris import play_game, published, rollout
from tetris.explanation import decisions
from tetris.features import AfterState, feature_values
from tetris.game import (
    Rows,
    Weights,
    after_states,
    choose,
    known_next,
    landing_row,
    pair_value,
    place,
    play,
    steps,
)
from tetris.piece_stream import PieceStream
from tetris.pieces import PIECES
from tetris.rollouts import Rollout
from tetris.rules import Rules

Stack = Callable[..., tuple[int, ...]]
BAR, SQUARE, TEE = 0, 1, 2


def as_weights(*values: float) -> Weights:
    return np.array(values, dtype=np.float64)


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


@pytest.mark.parametrize("clear_on_overflow", [False, True])
@pytest.mark.parametrize("board", [(4, 4), (4, 7), (5, 5)], ids=lambda board: f"{board[0]}x{board[1]}")
def test_it_is_what_every_pair_tried_by_hand_gives(board: tuple[int, int], clear_on_overflow: bool) -> None:
    rules = Rules(*board, clear_on_overflow=clear_on_overflow)
    names = ("landing_height", "holes", "eroded_cells", "row_transitions", "max_height")
    generator = np.random.default_rng(board[1])
    compared = 0
    for piece, after_it in product(range(7), range(7)):
        weights = (1024 * generator.normal(size=len(names))).round()  # whole, so that sums are exact
        rows = tuple(
            map(int, generator.integers(1, rules.full_row, size=generator.integers(0, rules.height)))
        )
        expected = by_force(rows, piece, after_it, weights, names, rules)
        chosen = choose(rows, piece, weights, names, rules, after_it)
        if expected is not None:
            assert (chosen.shape.orientation, chosen.column) == expected
            compared += 1
    assert compared > 20


def test_a_well_is_kept_open_for_the_bar_that_follows(stack: Stack) -> None:
    rows, rules = stack(".XXXX", ".XXXX"), Rules(5, 8)
    chosen = [
        choose(rows, SQUARE, as_weights(1), ("eroded_cells",), rules, each).column for each in (None, BAR)
    ]
    assert chosen == [0, 1]


def test_landing_height_and_eroded_cells_count_for_both_and_the_board_once() -> None:
    flat = next(after for after in after_states((), BAR, Rules(4, 8)) if after.shape.orientation == 1)
    names, square = ("landing_height", "eroded_cells", "max_height"), 0.5 + 2
    assert flat.rows == ()
    # A row of four cells goes with the first piece, and the square on the floor is two rows high.
    assert pair_value(flat, SQUARE, as_weights(1, 100, 10), names) == 400 + 0.5 + 20
    # The square lands on a bar two rows up.
    low = next(after for after in after_states((), BAR, Rules(5, 8)) if after.shape.orientation == 1)
    assert pair_value(low, SQUARE, as_weights(1, 100, 10), names) == 0 + 1.5 + 30
    assert pair_value(low, BAR, as_weights(1, 0, 0), names) == square


def test_the_first_of_equal_pairs_is_chosen() -> None:
    after = choose((), TEE, as_weights(0), ("holes",), Rules(4, 8), BAR)
    assert (after.shape.orientation, after.column) == (0, 0)


def test_where_no_pair_survives_the_next_piece_does_not_count(stack: Stack) -> None:
    rows = stack("XX.X", "X.XX")  # a square comes to rest below the top row, and a bar nowhere after it
    names, weights, rules = ("column_height_2",), as_weights(1), Rules(4, 4)
    assert all(
        pair_value(after, BAR, weights, names) == -np.inf for after in after_states(rows, SQUARE, rules)
    )
    assert choose(rows, SQUARE, weights, names, rules, BAR).column == 1


def test_where_every_placement_ends_the_game_it_is_the_first(stack: Stack) -> None:
    rows = stack("X.X.", ".X.X", "X.X.", ".X.X")
    after = choose(rows, SQUARE, as_weights(-1), ("landing_height",), Rules(4, 4), BAR)
    assert (after.shape.orientation, after.column, after.game_over) == (0, 0, True)


def test_the_last_piece_of_a_list_is_placed_without_a_next_one() -> None:
    assert [known_next([BAR, SQUARE], t, 2) for t in (0, 1)] == [SQUARE, None]
    assert known_next([BAR, SQUARE], 0, 1) is None
    weights = as_weights(-1)
    *_, last = steps((), [SQUARE, BAR], weights, ("holes",), Rules(4, 8), 0, 2, pieces_known=2)
    assert last.piece == BAR


def test_a_game_kept_and_a_controller_shown_are_the_games_that_are_played() -> None:
    controller, rules = published("dellacherie"), Rules(5, 6)
    game = play_game(controller, 3, rules=rules, stream=2, pieces_known=2)
    names, weights = controller.names_on(rules), controller.played_weights
    _, lines, games, made = play((), weights, names, rules, 3, 2, 0, len(game.steps), pieces_known=2)
    assert (game.lines, game.over, len(game.steps)) == (lines, bool(games), made)
    shown = decisions(controller, rules, PieceStream(rules, 3, 2), pieces_known=2)
    assert [after.rows for after, _ in zip(shown, game.steps, strict=False)] == [
        step.rows for step in game.steps
    ]
    assert game.steps != play_game(controller, 3, rules=rules, stream=2).steps


def engines(
    weights: torch.Tensor, rules: Rules, streams: int, *, python: bool = True, **options: Any
) -> list[Rollout]:
    """The same games by every engine, the lanes of AVX2 included where the processor has them."""
    found = engines_and_avx2(weights, rules, streams, 5, features="dt", pieces_known=2, **options)
    return found[0 if python else 1 :]


@pytest.mark.parametrize(
    "rules",
    [
        Rules(10, 20),
        Rules(10, 10, clear_on_overflow=True, pieces="bag"),
        Rules(4, 4, clear_on_overflow=True),
        Rules(4, 4, pieces="bag"),
        Rules(4, 24, pieces="SZ"),
        Rules(7, 13, clear_on_overflow=True, pieces="SZ"),
    ],
    ids=str,
)
def test_cpu_plays_as_python_does(rules: Rules) -> None:
    assert_equal(*engines(weights_for("dt", rules.width), rules, 1), decisions=25)


def test_scores_that_overflow_are_decided_alike() -> None:
    weights = torch.full((2, 9), 3e38)
    weights[1, ::2] *= -1
    assert_equal(*engines(weights, Rules(6, 7), 1), decisions=30)


def test_each_feature_of_a_set_decides_as_in_python() -> None:
    weights = weights_for("bertsekas", 6, 2)  # none tells of the placement
    both = [
        Rollout(weights, Rules(6, 8), 1, 5, each, features="bertsekas", pieces_known=2)
        for each in ("python", "cpu")
    ]
    assert_equal(*both, decisions=30)


@pytest.mark.parametrize("clear_on_overflow", [False, True])
@pytest.mark.parametrize(
    "board", [(10, 20), (10, 12), (10, 11), (6, 22), (5, 6)], ids=lambda board: f"{board[0]}x{board[1]}"
)
def test_lanes_of_every_width_agree_for_long(board: tuple[int, int], clear_on_overflow: bool) -> None:
    rules = Rules(*board, clear_on_overflow=clear_on_overflow)
    assert_equal(*engines(weights_for("dt", board[0], 5), rules, 2, python=False), decisions=400)


@pytest.mark.parametrize("height", [3, 4, 6, 7, 8, 10, 11, 12, 15, 16, 20])
def test_tall_stacks_agree(height: int) -> None:
    # Two upright pieces on the stack make the well beside them eight cells deeper than the stack is high.
    weights = torch.randn(6, 9, generator=torch.Generator().manual_seed(height))
    games = engines(weights, Rules(10, 24, pieces="IT"), 2)
    for game in games:
        game._columns[:] = (1 << height) - 1
        game._columns[:, 0, 0] = game._columns[:, 1, 4] = 0
    assert_equal(*games, decisions=3)


def test_splitting_a_rollout_changes_nothing() -> None:
    weights, rules = weights_for("dt", 10), Rules(10, 5, pieces="bag")
    whole, split = (Rollout(weights, rules, 3, 9, "cpu", features="dt", pieces_known=2) for _ in range(2))
    for parts in (1, 6, 0, 393):
        split.advance(parts)
    assert int(whole.advance(400).games.sum()) > 3
    assert torch.equal(whole.boards, split.boards)
    assert torch.equal(whole._lines, split._lines)


def test_streams_stop_alike() -> None:
    all_of_them = engines(weights_for("dt", 4), Rules(4, 4), 3, games_per_stream=2)
    for some in (5, 15):
        assert_equal(*all_of_them, decisions=some)
    for engine in all_of_them:
        assert torch.equal(engine._made, all_of_them[0]._made)


def test_who_knows_the_next_piece_plays_longer() -> None:
    # 26 and 206 lines a game; 100 games are within a third of it, but for one case in a thousand.
    one, two = (
        rollout([published("dt20").weights], Rules(10, 5), 16, 4000, 1, pieces_known=known)
        for known in (1, 2)
    )
    assert two.lines / two.games > 4 * one.lines / one.games
    assert int(two.games) > 100


@pytest.mark.parametrize(
    ("pieces_known", "error", "message"),
    [
        (0, ValueError, "expected pieces_known from 1 to 2, got 0"),
        (3, ValueError, "expected pieces_known from 1 to 2, got 3"),
        (True, TypeError, "expected pieces_known to be an int, got True"),
        ("2", TypeError, "expected pieces_known to be an int, got '2'"),
    ],
)
def test_bad_numbers_are_refused(pieces_known: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        rollout([[1.0] * 9], device="python", pieces_known=pieces_known)
    with pytest.raises(error, match=message):
        play_game("dt20", pieces_known=pieces_known)


def test_the_known_piece_goes_with_a_board_that_is_copied() -> None:
    rules, names = Rules(4, 8), ("holes", "max_height", "landing_height")
    weights = as_weights(-1, -2, -0.5)
    games = Rollout([weights], rules, 3, 7, "python", features=",".join(names), pieces_known=2)
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
            rows = choose(rows, falls, weights, names, rules, pieces[stream][after_it]).rows
        assert tuple(row for row in games.boards[0, stream].tolist() if row) == rows


@pytest.mark.parametrize("options", [{}, {"share_streams": False, "first_stream": 9}], ids=str)
@pytest.mark.parametrize("rules", [Rules(4, 4), Rules(7, 20, pieces="bag")], ids=str)
def test_copied_boards_are_played_alike(rules: Rules, options: dict[str, Any]) -> None:
    all_of_them = engines(weights_for("dt", rules.width), rules, 3, **options)
    for sources in ([[1, 2, 0], [2, 2, 0]], [[2, 1, 1]]):
        for engine in all_of_them:
            for source in sources:
                engine.branch(torch.tensor([source]).expand(3, -1))
        assert_equal(*all_of_them, decisions=7)
