"""The CUDA engine on a GPU: what the CPU plays, bit for bit, without waiting for the device."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from engine_games import (
    ANY,
    GAMES,
    NEXT,
    ONE,
    decide,
    every_feature,
    features_for,
    few_features,
    same,
    stacks,
    totals,
    weights_for,
)

from tetris import Rollout, Rules, rollout

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

MANY, FEW = 20_000, 40
"""Games that get a thread each, and a warp each, on any GPU."""


def assert_equal(one: Rollout, other: Rollout, *splits: int) -> None:
    for decisions in splits:
        one.advance(decisions)
        other.advance(decisions)
    assert same(totals(one), totals(other))


def both(*arguments: Any, **options: Any) -> tuple[Rollout, Rollout]:
    return Rollout(*arguments, device="cpu", **options), Rollout(*arguments, device="cuda", **options)


@pytest.mark.heavy
@pytest.mark.parametrize("games", [FEW, MANY])
@pytest.mark.parametrize("features", [every_feature(10), "dt_columns"], ids=["every feature", "columns"])
def test_features_play_as_on_the_cpu(features: str, games: int) -> None:
    weights = weights_for(features, 10, 4)
    assert_equal(*both(weights, Rules(10, 12), games // 4, 3, features=features), 60, 1, 140)


def test_each_feature_alone_decides_as_on_the_cpu() -> None:
    rules, features = Rules(10, 20), every_feature(10)
    alone = torch.eye(weights_for(features, 10).shape[1])
    boards, pieces = stacks(rules, 70), [board % 7 for board in range(70)]
    found = [
        decide(device, torch.cat([alone, -alone]), rules, boards, pieces, features)
        for device in ("cpu", "cuda")
    ]
    assert same(*map(list, found))


@pytest.mark.parametrize("case", range(len(GAMES)), ids=lambda case: str(GAMES[case][0]))
@pytest.mark.parametrize(("way", "games"), [(ONE, FEW), (ONE, MANY), (NEXT, FEW), (ANY, FEW)], ids=str)
def test_games_are_those_of_the_cpu(case: int, way: dict[str, Any], games: int) -> None:
    rules, options = GAMES[case]
    features = features_for(way, rules.width)
    weights = weights_for(features, rules.width, 4)
    one, other = both(weights, rules, games // 4, features=features, **way, **options)
    source = torch.arange(games // 4).flip(0).expand(4, -1)
    for decisions in (1, 80):
        one.branch(source)
        other.branch(source.cuda())
        assert_equal(one, other, decisions)


@pytest.mark.parametrize("way", [NEXT, ANY], ids=["next", "any"])
def test_many_games_look_ahead_as_on_the_cpu(way: dict[str, Any]) -> None:
    features = few_features(10)
    assert_equal(
        *both(weights_for(features, 10, 2), Rules(10, 20), MANY // 2, features=features, **way), 4, 1
    )


@pytest.mark.parametrize("scale", [1e-40, 1e37])
def test_weights_of_any_size_play_as_on_the_cpu(scale: float) -> None:
    weights = weights_for("dt", 10, 2) / 10 * scale
    assert_equal(*both(weights, Rules(10, 10), FEW // 2, 6), 60)


@pytest.mark.parametrize("games", [FEW, MANY])
def test_streams_stop_as_on_the_cpu(games: int) -> None:
    one, other = both(weights_for("dt", 10, 5), Rules(10, 6), games // 5, 8, games_per_stream=3)
    assert_equal(one, other, 1, 60, 5000, 300)
    assert int(other.advance(0).games[1:].min()) == games // 5 * 3


def test_one_candidate_plays_many_streams_and_many_candidates_one_each() -> None:
    rules = Rules(10, 10)
    assert_equal(*both(weights_for("dt", 10, 1), rules, MANY, 7), 40)
    assert_equal(*both(weights_for("dt", 10, MANY), rules, 1, 7), 40)


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
def test_it_plays_where_the_weights_lie_whatever_device_is_current() -> None:
    weights = weights_for("dt", 10, 2)
    expected = rollout(weights, Rules(10, 10), 50, 300, 9, "cpu")
    games = Rollout(weights.to("cuda:1"), Rules(10, 10), 50, 9, "cuda")
    with torch.cuda.device(0):
        result = games.advance(300)
    assert result.lines.get_device() == 1
    assert torch.equal(result.lines.cpu(), expected.lines)


@pytest.mark.heavy
def test_a_multiprocessor_has_more_games_than_it_takes_at_once() -> None:
    features = every_feature(10)
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
