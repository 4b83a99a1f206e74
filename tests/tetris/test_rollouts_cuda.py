"""The CUDA engine on a GPU: what the CPU plays, bit for bit, without waiting for the device."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from engine_games import (
    EXPECTIMAX,
    GAMES,
    NONE,
    PREVIEW,
    decide,
    every_feature,
    policy_for,
    same,
    stacks,
    totals,
    weights_for,
)

from tetris import Lookahead, Policy, Rollout, Rules, Streams, rollout

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

MANY, FEW = 20_000, 40
"""Games that get a thread each, and a warp each, on any GPU."""


def assert_equal(one: Rollout, other: Rollout, *splits: int) -> None:
    for decisions in splits:
        one.advance(decisions)
        other.advance(decisions)
    assert same(totals(one), totals(other))


def both(policy: Policy, *streams: Any) -> tuple[Rollout, Rollout]:
    """The same games on both; ``streams`` are the arguments of `Streams`."""
    return Rollout(policy, Streams(*streams), "cpu"), Rollout(policy, Streams(*streams), "cuda")


@pytest.mark.heavy
@pytest.mark.parametrize("games", [FEW, MANY])
@pytest.mark.parametrize(
    "features", [every_feature(10), "dt_columns"], ids=["every feature", "columns"]
)
def test_features_play_as_on_the_cpu(features: str, games: int) -> None:
    policy = Policy(weights_for(features, 10, 4), features)
    assert_equal(*both(policy, Rules(10, 12), games // 4, 3), 60, 1, 140)


def test_each_feature_alone_decides_as_on_the_cpu() -> None:
    rules, features = Rules(10, 20), every_feature(10)
    alone = torch.eye(weights_for(features, 10).shape[1])
    boards, pieces = stacks(rules, 70), [board % 7 for board in range(70)]
    found = [
        decide(device, torch.cat([alone, -alone]), rules, boards, pieces, features)
        for device in ("cpu", "cuda")
    ]
    assert same(*map(list, found))


@pytest.mark.parametrize("streams", GAMES, ids=str)
@pytest.mark.parametrize(
    ("lookahead", "games"),
    [(NONE, FEW), (NONE, MANY), (PREVIEW, FEW), (EXPECTIMAX, FEW)],
    ids=str,
)
def test_games_are_those_of_the_cpu(streams: Streams, lookahead: Lookahead, games: int) -> None:
    policy, streams = (
        policy_for(lookahead, streams.rules.width, 4),
        replace(streams, count=games // 4),
    )
    one, other = Rollout(policy, streams, "cpu"), Rollout(policy, streams, "cuda")
    source = torch.arange(games // 4).flip(0).expand(4, -1)
    for decisions in (1, 80):
        one.branch(source)
        other.branch(source.cuda())
        assert_equal(one, other, decisions)


@pytest.mark.parametrize("lookahead", [PREVIEW, EXPECTIMAX])
def test_many_games_look_ahead_as_on_the_cpu(lookahead: Lookahead) -> None:
    assert_equal(*both(policy_for(lookahead, 10, 2), Rules(10, 20), MANY // 2), 4, 1)


@pytest.mark.parametrize(
    ("lookahead", "games"), [(NONE, FEW), (NONE, MANY), (EXPECTIMAX, FEW)], ids=str
)
def test_hidden_units_play_as_on_the_cpu(lookahead: Lookahead, games: int) -> None:
    policy = Policy(weights_for("dt+5", 10, 4), "dt+5", lookahead)
    assert_equal(*both(policy, Rules(10, 12), games // 4, 3), 4, 1)


@pytest.mark.parametrize("games", [FEW, MANY])
def test_streams_stop_as_on_the_cpu(games: int) -> None:
    one, other = both(Policy(weights_for("dt", 10, 5)), Rules(10, 6), games // 5, 8, 0, True, 3)
    assert_equal(one, other, 1, 60, 5000, 300)
    assert int(other.advance(0).games[1:].min()) == games // 5 * 3


def test_one_candidate_plays_many_streams_and_many_candidates_one_each() -> None:
    rules = Rules(10, 10)
    assert_equal(*both(Policy(weights_for("dt", 10, 1)), rules, MANY, 7), 40)
    assert_equal(*both(Policy(weights_for("dt", 10, MANY)), rules, 1, 7), 40)


def test_a_rollout_has_no_operation_that_waits_for_the_device() -> None:
    policy, streams = Policy(weights_for("dt", 10, 8).cuda()), Streams(count=500)
    rollout(policy, streams, 100, "cuda")  # compiled, and its pace known
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = rollout(policy, streams, 100, "cuda")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert result.lines.is_cuda
    assert int(result.decisions.sum()) == 8 * 500 * 100


def test_it_plays_on_a_stream_of_the_caller_s() -> None:
    policy, streams = Policy(weights_for("dt", 10, 2)), Streams(Rules(10, 10), 50, 8)
    expected = rollout(policy, streams, 100)
    with torch.cuda.stream(torch.cuda.Stream()):
        result = rollout(policy, streams, 100, "cuda")
        lines = result.lines.cpu()
    assert torch.equal(lines, expected.lines)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a second GPU")
def test_it_plays_where_the_weights_lie_whatever_device_is_current() -> None:
    weights = weights_for("dt", 10, 2)
    streams = Streams(Rules(10, 10), 50, 9)
    expected = rollout(Policy(weights), streams, 300)
    games = Rollout(Policy(weights.to("cuda:1")), streams, "cuda")
    with torch.cuda.device(0):
        result = games.advance(300)
    assert result.lines.get_device() == 1
    assert torch.equal(result.lines.cpu(), expected.lines)


@pytest.mark.heavy
def test_it_stops_within_two_seconds() -> None:
    began = time.monotonic()

    def check() -> None:
        if time.monotonic() - began > 1:
            raise KeyboardInterrupt

    games = Rollout(Policy(weights_for("dt", 10, 64)), Streams(count=2000), "cuda")
    with pytest.raises(KeyboardInterrupt):
        games.advance(1 << 40, check)
    torch.cuda.synchronize()
    assert time.monotonic() - began < 3
