"""The original game's rule: after a landing the next piece has to appear inside the board."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from tetris import LinearController, Lookahead, Rollout, Rules, Streams, published, rollout
from tetris.game.decisions import appears, choose, place, play, steps, with_next
from tetris.game.piece_stream import PieceStream
from tetris.game.pieces import PIECES
from tetris.game.policy import Player
from tetris.record.explanation import decisions
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


@pytest.mark.parametrize("board", [(4, 4), (5, 24), (10, 20)])
def test_every_piece_appears_on_an_empty_board_and_on_one_with_four_rows_to_spare(
    board: tuple[int, int],
) -> None:
    rules = Rules(*board, original=True)
    for piece in range(7):
        assert appears((), piece, rules)
        assert appears((1,) * (rules.height - 4), piece, rules)
        assert not appears((rules.full_row - 1,) * rules.height, piece, rules)


def test_it_appears_in_the_middle_columns() -> None:
    for width, piece, column in ((10, BAR, 4), (10, SQUARE, 4), (9, SQUARE, 3), (10, 6, 3), (4, 6, 0)):
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
    first, second = steps(rows, [BAR, BAR], player, SMALL, 0, 2)
    assert (first.column, first.lines, first.game_over, first.rows) == (3, 1, True, after.rows)
    assert (second.column, second.game_over) == (0, False)  # on the empty board; no piece of the list follows


def test_a_piece_that_overflows_ends_the_game_and_clears_nothing(stack: Stack) -> None:
    rows = stack("XXX.", "X.X.", "XXX.", "X.X.")
    published_rule = place(rows, PIECES[BAR][0], 3, 1, Rules(4, 4))
    after = place(rows, PIECES[BAR][0], 3, 1, SMALL)
    assert replace(after, rules=Rules(4, 4)) == published_rule
    assert (after.lines, after.game_over) == (0, True)


def test_who_knows_the_next_piece_leaves_room_for_it() -> None:
    player = Player(("max_height",), np.array([1.0]), Lookahead.PREVIEW)
    columns = [
        choose((), SQUARE, player, rules, known).column
        for rules, known in ((Rules(4, 4), BAR), (SMALL, BAR), (SMALL, None))
    ]
    # On columns 0 and 1, or 1 and 2, the square is where the bar appears: in column 1.
    assert columns == [0, 2, 0]


def test_play_counts_what_the_steps_did_and_goes_on_where_it_stopped() -> None:
    rules, player = Rules(6, 6, original=True), published("dt20").player(Rules(6, 6))
    pieces = PieceStream(rules, 3, 1)
    played = list(steps((), pieces, player, rules, 0, 300))
    rows, lines, games, made = play((), pieces, player, rules, 0, 300)
    assert (lines, games, made) == (sum(s.lines for s in played), sum(s.game_over for s in played), 300)
    assert rows == (() if played[-1].game_over else played[-1].rows)
    assert games > play((), pieces, player, Rules(6, 6), 0, 300)[2]
    ends = [t for t, step in enumerate(played, start=1) if step.game_over]
    stopped = play((), pieces, player, rules, 0, 300, 2)
    assert stopped == ((), sum(step.lines for step in played[: ends[1]]), 2, ends[1])


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_a_board_is_copied_with_its_next_piece(device: str) -> None:
    for original in (True, False):
        games = Rollout(DT20.policy(), Streams(Rules(10, 20, original=original), 2, 4), device)
        games.play_on(6)
        games.branch(torch.tensor([[0, 0]]))
        games.play_on(1)
        assert torch.equal(games.boards[0, 0], games.boards[0, 1]) == original


def test_a_controller_file_keeps_the_rule(tmp_path: Path) -> None:
    controller = replace(published("dt20"), rules=Rules(10, 16, original=True))
    controller.save(tmp_path / "controller.json")
    assert LinearController.load(tmp_path / "controller.json") == controller
    assert controller.rules.rule == "original"


def test_a_replay_is_the_game_that_the_engines_play(tmp_path: Path) -> None:
    rules = Rules(6, 6, original=True)
    controller = published("dt20")
    for count in range(40, 60):  # the last placement ends a game, or not
        played = islice(decisions(controller, rules, PieceStream(rules, 7, 0)), count)
        replay = Replay.of(played, rules, 7, 0, controller)
        expected = rollout(controller.policy(), Streams(rules, seed=7), count)
        assert (replay.lines, replay.games) == (expected.lines.item(), expected.games.item())
        replay.save(tmp_path / "replay.json")
        assert len(list(Replay.load(tmp_path / "replay.json").after_states())) == count


def test_a_replay_without_a_seed_does_not_know_the_piece_after_it() -> None:
    with pytest.raises(ValueError, match="expected a seed and a stream by the original rule, got neither"):
        Replay(SMALL, bytes([0]), 0, 0)


def test_what_has_no_such_rule_says_so() -> None:
    with pytest.raises(
        ValueError, match="expected the rule to be published or clear-on-overflow, got original"
    ):
        solve(SMALL)
