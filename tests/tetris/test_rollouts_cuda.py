"""The CUDA engine on a GPU: what the CPU plays, bit for bit, without waiting for the device."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from tetris import Rollout, Rules, published, rollout
from tetris.feature_sets import feature_names
from tetris.rules import RULES

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

FEATURES = [
    "dellacherie",
    "bcts",
    "dt",
    "dt_surface",
    "dt_full",
    "dt_columns",
    "dt_steps",
    "bertsekas",
    "bdu",
]
MANY, FEW = 20_000, 40
"""Games that get a thread each, and a warp each, on any GPU."""


def weights_for(features: str, width: int, population: int) -> torch.Tensor:
    names = feature_names(features, width)
    weights = torch.randn(population, len(names), generator=torch.Generator().manual_seed(len(names)))
    good = {"dt": "dt20", "bcts": "bcts", "dellacherie": "dellacherie", "bdu": "bdu"}.get(features)
    if good is not None:
        weights[0] = torch.tensor(published(good).weights)
    return weights


def assert_equal(one: Rollout, other: Rollout, *splits: int) -> None:
    for decisions in splits:
        one.advance(decisions)
        other.advance(decisions)
    first, second = one.advance(0), other.advance(0)
    assert torch.equal(first.lines.cpu(), second.lines.cpu())
    assert torch.equal(first.games.cpu(), second.games.cpu())
    assert torch.equal(first.decisions.cpu(), second.decisions.cpu())
    assert torch.equal(one.boards, other.boards)


def both(*arguments: Any, **options: Any) -> tuple[Rollout, Rollout]:
    return Rollout(*arguments, device="cpu", **options), Rollout(*arguments, device="cuda", **options)


@pytest.mark.heavy
@pytest.mark.parametrize("games", [FEW, MANY])
@pytest.mark.parametrize("features", FEATURES)
def test_every_feature_set_plays_as_on_the_cpu(features: str, games: int) -> None:
    weights = weights_for(features, 10, 4)
    assert_equal(*both(weights, Rules(10, 12), games // 4, 3, features=features), 60, 1, 140)


@pytest.mark.parametrize("games", [FEW, MANY])
@pytest.mark.parametrize("pieces", ["uniform", "bag", "SZ", "I"])
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_played_as_on_the_cpu(games: int, pieces: str, rule: str) -> None:
    rules = Rules.of(10, 10, rule, pieces)
    assert_equal(*both(weights_for("dt", 10, 2), rules, games // 2, 4, features="dt"), 80)


@pytest.mark.parametrize("games", [FEW, MANY])
@pytest.mark.parametrize("board", ["10x20", "7x10", "4x4"])
def test_the_next_piece_is_known_as_on_the_cpu(games: int, board: str) -> None:
    rules = Rules(*Rules.parse_board(board))
    decisions = (100, 1, 400) if games == FEW else (4, 1)
    weights = weights_for("dt", rules.width, 2)
    assert_equal(*both(weights, rules, games // 2, 4, features="dt", pieces_known=2), *decisions)


@pytest.mark.parametrize(("games", "decisions"), [(4, (2, 1)), (FEW, (100, 1, 400)), (MANY, (4, 1))])
@pytest.mark.parametrize("board", ["10x20", "7x10", "4x4"])
def test_it_looks_ahead_as_the_cpu_does(games: int, decisions: tuple[int, ...], board: str) -> None:
    rules = Rules(*Rules.parse_board(board))
    weights = weights_for("dt", rules.width, 2)
    assert_equal(*both(weights, rules, games // 2, 4, features="dt", lookahead=True), *decisions)


@pytest.mark.parametrize("games", [FEW, MANY])
@pytest.mark.parametrize("board", ["4x4", "4x24", "10x24", "10x4", "7x13", "5x20"])
def test_every_board_is_played_as_on_the_cpu(games: int, board: str) -> None:
    rules = Rules(*Rules.parse_board(board))
    assert_equal(*both(weights_for("dt", rules.width, 2), rules, games // 2, 5, features="dt"), 80)


@pytest.mark.parametrize("options", [{"share_streams": False}, {"first_stream": (1 << 40) + 3}])
@pytest.mark.parametrize("games", [FEW, MANY])
def test_streams_are_those_of_the_cpu(games: int, options: dict[str, Any]) -> None:
    weights = weights_for("dt", 10, 5)
    assert_equal(*both(weights, Rules(10, 10), games // 5, (1 << 64) - 1, features="dt", **options), 33, 50)


@pytest.mark.parametrize("games", [FEW, MANY])
@pytest.mark.parametrize("games_per_stream", [1, 3])
def test_streams_stop_as_on_the_cpu(games: int, games_per_stream: int) -> None:
    weights = weights_for("dt", 10, 5)
    one, other = both(weights, Rules(10, 6), games // 5, 8, features="dt", games_per_stream=games_per_stream)
    assert_equal(one, other, 1, 60, 5000, 300)
    assert int(other.advance(0).games[1:].min()) == games // 5 * games_per_stream


@pytest.mark.parametrize("games", [FEW, MANY])
@pytest.mark.parametrize("scale", [1e-40, 1e-33, 1e33, 1e37])
def test_weights_of_any_size_play_as_on_the_cpu(games: int, scale: float) -> None:
    weights = weights_for("dt", 10, 2) * scale
    assert_equal(*both(weights, Rules(10, 10), games // 2, 6, features="dt"), 60)


def test_one_candidate_plays_many_streams_and_many_candidates_one_each() -> None:
    rules = Rules(10, 10)
    assert_equal(*both(weights_for("dt", 10, 1), rules, MANY, 7, features="dt"), 40)
    assert_equal(*both(weights_for("dt", 10, MANY), rules, 1, 7, features="dt"), 40)


def test_many_games_end_and_begin_again_within_a_few_decisions() -> None:
    one, other = both(weights_for("dt", 10, 2), Rules(10, 4), MANY // 2, 11, features="dt")
    assert_equal(one, other, 1, 9)
    assert int(other.advance(0).games.sum()) > MANY // 10


def test_a_rollout_has_no_operation_that_waits_for_the_device() -> None:
    weights = weights_for("dt", 10, 8).cuda()
    rollout(weights, streams=500, decisions=100, device="cuda")  # compiled, and its pace known
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = rollout(weights, streams=500, decisions=100, device="cuda")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert result.lines.is_cuda
    assert int(result.decisions.sum()) == 8 * 500 * 100


def test_it_plays_on_a_stream_of_the_caller_s() -> None:
    weights = weights_for("dt", 10, 2)
    expected = rollout(weights, Rules(10, 10), 50, 100, 8, "cpu")
    with torch.cuda.stream(torch.cuda.Stream()):
        result = rollout(weights, Rules(10, 10), 50, 100, 8, "cuda")
        lines = result.lines.cpu()
    assert torch.equal(lines, expected.lines)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a second GPU")
def test_it_plays_on_a_second_device() -> None:
    weights = weights_for("dt", 10, 2)
    expected = rollout(weights, Rules(10, 10), 50, 100, 9, "cpu")
    with torch.cuda.device(1):
        result = rollout(weights, Rules(10, 10), 50, 100, 9, "cuda")
        assert result.lines.get_device() == 1
        assert torch.equal(result.lines.cpu(), expected.lines)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a second GPU")
def test_it_plays_where_the_weights_lie_whatever_device_is_current() -> None:
    weights = weights_for("dt", 10, 2)
    expected = rollout(weights, Rules(10, 10), 50, 300, 9, "cpu")
    games = Rollout(weights.to("cuda:1"), Rules(10, 10), 50, 9, "cuda")
    with torch.cuda.device(0):
        result = games.advance(300)
    assert result.lines.get_device() == 1
    assert torch.equal(result.lines.cpu(), expected.lines)


@pytest.mark.heavy
@pytest.mark.parametrize("features", ["dt", "dt_full"])
def test_a_multiprocessor_has_more_games_than_it_takes_at_once(features: str) -> None:
    assert_equal(*both(weights_for(features, 10, 40), Rules(10, 10), 10_000, 10, features=features), 20)


@pytest.mark.heavy
def test_it_stops_within_two_seconds() -> None:
    began = time.monotonic()

    def check() -> None:
        if time.monotonic() - began > 1:
            raise KeyboardInterrupt

    games = Rollout(weights_for("dt", 10, 64), Rules(10, 20), 2000, device="cuda")
    with pytest.raises(KeyboardInterrupt):
        games.advance(1 << 40, check)
    torch.cuda.synchronize()
    assert time.monotonic() - began < 3
