"""The engines agree bit for bit: Python, the C++ engine's lanes, and the CUDA engine on
emulated threads."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_games import (
    EXPECTIMAX,
    GAMES,
    NONE,
    PREVIEW,
    decide,
    every_feature,
    played_by,
    policy_for,
    same,
    stacks,
    totals,
    weights_for,
)

from tetris import Lookahead, Policy, Streams, feature, feature_header
from tetris.game.decisions import after_states, weighted_sums
from tetris.game.feature_sets import feature_names
from tetris.game.features import AfterState, feature_values
from tetris.game.rules import Rules
from tetris.play.quantized_weights import played_weights

BOARDS = [Rules(10, 20), Rules(4, 24, clear_on_overflow=True), Rules(10, 12), Rules(7, 5)]
SLOW = pytest.mark.slow
PLAYED = [
    *((NONE, engine) for engine in ("cpu", "warps", "threads")),
    *((PREVIEW, engine) for engine in ("cpu", "warps")),
    *((EXPECTIMAX, engine) for engine in ("cpu", "portable", "threads")),
    *(
        pytest.param(each, engine, marks=SLOW)
        for each, engine in ((NONE, "portable"), (PREVIEW, "avx2"))
    ),
]
"""Every way to look ahead on every kind of engine, and every kind of lanes by one of the
ways."""


def rows_of(columns: list[int]) -> tuple[int, ...]:
    height = max(columns).bit_length()
    return tuple(
        sum((column >> y & 1) << c for c, column in enumerate(columns)) for y in range(height)
    )


@functools.cache
def chosen(rules: Rules) -> tuple[torch.Tensor, torch.Tensor, list[int], list[Any]]:
    """Weights, boards and pieces, and what the features of all placements in Python say of
    them.

    Each feature alone decides, as many as possible and as few as possible of it, and several
    together.
    """
    features = feature_names(every_feature(rules.width), rules.width)
    alone = torch.eye(len(features))
    weights = torch.cat([alone, -alone, weights_for(every_feature(rules.width), rules.width)])
    stacked, pieces = stacks(rules, 35), 5 * [*range(7)]
    found = []
    for board, piece in zip(stacked.tolist(), pieces, strict=True):
        after = list(after_states(rows_of(board), piece, rules))
        alive = [each for each in after if not each.game_over] or after[:1]
        values = np.array([feature_values(each, features) for each in alive], dtype=np.float64)
        best = [
            int(weighted_sums(values, row).argmax())
            for row in played_weights(weights, features).numpy()
        ]
        found.append([(alive[i].rows, alive[i].lines, alive[i].game_over) for i in best])
    return weights, stacked, pieces, found


@pytest.mark.parametrize(
    "engine",
    [
        "cpu",
        "warps",
        "threads",
        *(pytest.param(lanes, marks=SLOW) for lanes in ("portable", "avx2")),
    ],
)
@pytest.mark.parametrize("rules", BOARDS, ids=str)
def test_a_decision_on_any_board_is_that_of_every_placement_tried(
    rules: Rules, engine: str
) -> None:
    weights, boards, pieces, expected = chosen(rules)
    count = 7 if engine == "warps" else len(pieces)  # which takes 32 emulated threads per game
    columns, lines, games = decide(
        engine, weights, rules, boards[:count], pieces[:count], every_feature(rules.width)
    )
    names = feature_names(every_feature(rules.width), rules.width)
    deciding = [*names, *names, "several", "several", "several"]
    for board, outcomes in enumerate(expected[:count]):
        for candidate, (rows, cleared, over) in enumerate(outcomes):
            found = rows_of(columns[candidate, board].tolist()), int(games[candidate, board])
            assert found == (((), 1) if over else (rows, 0)), (board, deciding[candidate])
            assert int(lines[candidate, board]) == cleared, (board, deciding[candidate])


def play(engine: str, streams: Streams, lookahead: Lookahead) -> list[list[torch.Tensor]]:
    """What games became, part by part; some begin on stacks, and streams change boards before
    each part."""
    games = played_by(engine, policy_for(lookahead, streams.rules.width), streams)
    games.columns[:, 1:] = stacks(streams.rules, 2)
    found = []
    for decisions in (1, 0, 25 if lookahead is NONE else 4):
        games.branch(torch.tensor([1, 2, 0]).expand(3, -1))
        games.play_on(decisions)
        found.append(totals(games))
    return found


@functools.cache
def reference(streams: Streams, lookahead: Lookahead) -> list[list[torch.Tensor]]:
    return play("python", streams, lookahead)


@pytest.mark.parametrize(("lookahead", "engine"), PLAYED, ids=str)
def test_games_are_those_of_python(lookahead: Lookahead, engine: str) -> None:
    for streams in GAMES:
        expected = reference(streams, lookahead)
        for one, other in zip(play(engine, streams, lookahead), expected, strict=True):
            assert same(one, other), streams


@pytest.mark.parametrize("lookahead", Lookahead)
def test_the_cases_end_games_and_clear_lines(lookahead: Lookahead) -> None:
    last = [reference(streams, lookahead)[-1] for streams in GAMES]
    assert sum(int(lines.sum()) for _, lines, _, _ in last) > 10
    assert sum(int(games.sum()) for _, _, games, _ in last) > 10
    assert any(made.min() < made.max() for *_, made in last)  # some streams have stopped


@pytest.mark.parametrize(
    ("lookahead", "engine"),
    [pytest.param(NONE, "portable", marks=SLOW), (PREVIEW, "avx2"), (EXPECTIMAX, "portable")],
    ids=str,
)
@pytest.mark.parametrize(
    "rules",
    [Rules(10, 20), Rules(10, 11, original=True), Rules(6, 22, clear_on_overflow=True)],
    ids=str,
)
def test_lanes_of_every_width_agree_for_long(
    rules: Rules, lookahead: Lookahead, engine: str
) -> None:
    """Stacks that rise and fall go from lanes of 16 bits to others and back."""
    policy = policy_for(lookahead, rules.width, 5)
    one, other = (played_by(each, policy, Streams(rules, 3)) for each in ("cpu", engine))
    for _ in range(2):
        for games in (one, other):
            games.columns[:, 1:] = stacks(rules, 2)
            games.play_on(2000 if lookahead is NONE else 100)
        assert same(totals(one), totals(other))


@pytest.mark.parametrize("lookahead", Lookahead)
def test_the_greatest_weights_are_added_up_alike(lookahead: Lookahead) -> None:
    policy = policy_for(lookahead, 5)
    weights = torch.full_like(torch.as_tensor(policy.weights)[:2], 3e38)
    weights[1, ::2] *= -1
    one, other = (
        played_by(each, replace(policy, weights=weights), Streams(Rules(5, 9)))
        for each in ("python", "cpu")
    )
    for games in (one, other):
        games.play_on(15)
    assert same(totals(one), totals(other))


@pytest.mark.parametrize(
    ("warps", "blocks", "streams"),
    [(2, 1, 2100), (7, 1, 300), (3, 1, 1600)],
    ids=["more games than a block has in hand", "a warp of the last group", "groups of warps"],
)
def test_warps_share_out_the_games_of_a_block(warps: int, blocks: int, streams: int) -> None:
    policy, many = policy_for(NONE, 4, 1), Streams(Rules(4, 4), streams)
    one, other = (played_by(each, policy, many, blocks, warps) for each in ("cpu", "threads"))
    for games in (one, other):
        games.play_on(1)
        games.play_on(9)
    assert same(totals(one), totals(other))


@SLOW
@pytest.mark.parametrize("engine", ["warps", "threads"])
def test_a_feature_of_ones_own_is_played_alike(
    engine: str, tmp_path: Path, own_features_forgotten: None
) -> None:
    header = tmp_path / "own.h"
    header.write_text(
        "TETRIS_FEATURE(LastColumn) { return board.column_height(board.width - 1)"
        " + board.cell(0, 0) + 9 * board.lines - board.total_height(); }"
    )

    def last_column(after: AfterState) -> int:
        corner = after.rows[0] & 1 if after.rows else 0
        return after.heights[-1] + corner + 9 * after.lines - sum(after.heights)

    feature(last_column)
    feature_header(header)
    policy = Policy([[-1.0, -1.0], [-1.0, 1.0]], "holes, last_column")
    one, other = (
        played_by(each, policy, Streams(Rules(6, 8), 3)) for each in ("python", engine)
    )
    for games in (one, other):
        games.play_on(41)
    assert same(totals(one), totals(other))
