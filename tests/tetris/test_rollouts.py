"""Rollouts: however one is split, shared or threaded, the games are the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from engine_games import weights_for

from tetris import Policy, Rollout, Rules, Streams, rollout


@pytest.mark.parametrize("device", ["python", "cpu"])
def test_a_stream_stops_where_its_last_game_ends(device: str) -> None:
    weights, streams = weights_for("dt", 10), Streams(Rules(10, 8), 2, 5)
    limit = 200 if device == "python" else 20_000
    one = {
        games: Rollout(Policy(weights), replace(streams, games=games), device)
        for games in (1, 2)
    }
    first, second = (each.advance(limit) for each in one.values())
    assert torch.equal(first.games[1:], torch.tensor([2, 2]))  # the random ones
    assert torch.equal(second.games[1:], torch.tensor([4, 4]))
    assert int(one[1].boards[1:].abs().sum()) == 0
    lines = one[1].stream_lines
    assert torch.equal(one[1].advance(limit).decisions[1:], first.decisions[1:])
    assert torch.equal(lines.sum(1), first.lines)
    # The second game begins with the piece after the first one's last.
    endless = Rollout(Policy(weights[1]), replace(streams, count=1), device)
    assert int(endless.advance(int(one[2]._placed[1, 0])).lines) == int(
        one[2].stream_lines[1, 0]
    )


def test_streams_that_have_stopped_cost_next_to_nothing() -> None:
    games = Rollout(Policy(torch.zeros(100, 9)), Streams(Rules(10, 10), 10, games=1))
    assert (
        int(games.advance(1 << 40).games.sum()) == 1000
    )  # a million seconds where they went on


@pytest.mark.parametrize("device", ["python", "cpu"])
def test_streams_are_shared_or_not(device: str) -> None:
    one, streams = weights_for("dt", 10)[0], Streams(Rules(10, 10), 2, 1)
    two = Policy(one.repeat(2, 1))
    shared = rollout(two, streams, 100, device)
    apart = rollout(two, replace(streams, shared=False), 100, device)
    later = rollout(Policy(one), replace(streams, first=2), 100, device)
    assert shared.lines[0] == shared.lines[1] == apart.lines[0]
    assert apart.lines[1] == later.lines[0]


def test_threads_do_not_matter() -> None:
    policy, streams = Policy(weights_for("dt", 10)), Streams(Rules(10, 10), 5, 2)
    torch.set_num_threads(1)
    one = rollout(policy, streams, 500)
    torch.set_num_threads(2)
    two = rollout(policy, streams, 500)
    assert torch.equal(one.lines, two.lines)
    assert torch.equal(one.games, two.games)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[1.0] * 8], r"expected weights of shape \(population, 9\), got \(1, 8\)"),
        ([[float("nan")] * 9], "expected finite float32 weights"),
    ],
)
def test_bad_weights_are_refused(weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rollout(Policy(weights), Streams(), device="python")


def test_bad_streams_counts_and_devices_are_refused() -> None:
    for name in ("count", "games", "first", "seed"):
        with pytest.raises(ValueError, match=f"expected {name} from"):
            Streams(**{name: -1})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected decisions from 0"):
        rollout(Policy([1.0] * 9), Streams(), -1, "python")
    with pytest.raises(ValueError, match="expected device to be cpu, cuda, python, got 'tpu'"):
        rollout(Policy([1.0] * 9), Streams(), device="tpu")
    with pytest.raises(ValueError, match=r"expected source of shape \(1, 2\), got \(1, 1\)"):
        Rollout(Policy([1.0] * 9), Streams(count=2), "python").branch(
            torch.zeros(1, 1, dtype=torch.int64)
        )
