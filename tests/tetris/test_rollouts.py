"""Rollouts: however one is split, shared or threaded, the games are the same."""

from __future__ import annotations

import pytest
import torch
from engine_games import weights_for

from kernels.loader.toolchain import CompilerMissingError
from tetris.game.rules import Rules
from tetris.play.rollouts import Rollout, rollout


@pytest.mark.parametrize("device", ["python", "cpu"])
def test_a_stream_stops_where_its_last_game_ends(device: str) -> None:
    weights, rules = weights_for("dt", 10), Rules(10, 8)
    limit = 200 if device == "python" else 20_000
    one = {games: Rollout(weights, rules, 2, 5, device, games_per_stream=games) for games in (1, 2)}
    first, second = (each.advance(limit) for each in one.values())
    assert torch.equal(first.games[1:], torch.tensor([2, 2]))  # the random ones
    assert torch.equal(second.games[1:], torch.tensor([4, 4]))
    assert int(one[1].boards[1:].abs().sum()) == 0
    assert torch.equal(one[1].advance(limit).decisions[1:], first.decisions[1:])
    # The second game begins with the piece after the first one's last.
    endless = Rollout(weights[1:2], rules, 1, 5, device)
    assert int(endless.advance(int(one[2]._made[1, 0])).lines) == int(one[2]._lines[1, 0])


def test_splitting_a_rollout_whose_streams_stop_changes_nothing() -> None:
    weights, rules = weights_for("dt", 10), Rules(10, 6, pieces="bag")
    whole, split = (Rollout(weights, rules, 3, 9, "cpu", games_per_stream=2) for _ in range(2))
    for decisions in (1, 6, 0, 50, 343):
        split.advance(decisions)
    expected, result = whole.advance(400), split.advance(0)
    assert torch.equal(expected.lines, result.lines)
    assert torch.equal(expected.games, result.games)
    assert torch.equal(expected.decisions, result.decisions)
    assert int(expected.games[1:].min()) == 6


def test_streams_that_have_stopped_cost_next_to_nothing() -> None:
    games = Rollout(torch.zeros(100, 9), Rules(10, 10), 10, device="cpu", games_per_stream=1)
    assert int(games.advance(1 << 40).games.sum()) == 1000  # a million seconds where they went on


@pytest.mark.parametrize("device", ["python", "cpu"])
def test_streams_are_shared_or_not(device: str) -> None:
    weights = weights_for("dt", 10)[:1].repeat(2, 1)
    shared = rollout(weights, Rules(10, 10), 2, 100, 1, device, features="dt")
    apart = rollout(weights, Rules(10, 10), 2, 100, 1, device, features="dt", share_streams=False)
    later = rollout(weights[:1], Rules(10, 10), 2, 100, 1, device, features="dt", first_stream=2)
    assert shared.lines[0] == shared.lines[1] == apart.lines[0]
    assert apart.lines[1] == later.lines[0]


def test_threads_do_not_matter() -> None:
    weights, rules = weights_for("dt", 10), Rules(10, 10)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = rollout(weights, rules, 5, 500, 2, "cpu", features="dt")
        torch.set_num_threads(2)
        two = rollout(weights, rules, 5, 500, 2, "cpu", features="dt")
    finally:
        torch.set_num_threads(before)
    assert torch.equal(one.lines, two.lines)
    assert torch.equal(one.games, two.games)


def test_check_is_called_and_may_end_the_rollout() -> None:
    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        rollout(weights_for("dt", 10), Rules(10, 10), 1, 100, 0, "python", features="dt", check=stop)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": [[1.0] * 8]}, r"expected weights of shape \(population, 9\), got \(1, 8\)"),
        ({"weights": [[float("nan")] * 9]}, "expected finite float32 weights"),
        ({"streams": 0}, "expected streams from 1"),
        ({"decisions": -1}, "expected decisions from 0"),
        ({"games_per_stream": 0}, "expected games_per_stream from 1"),
        ({"device": "tpu"}, "expected device to be cpu, cuda or python, got 'tpu'"),
    ],
)
def test_bad_input_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rollout(**{"weights": [[1.0] * 9], "device": "python", "features": "dt", **arguments})


def test_without_a_compiler_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from tetris.play import engines as native

    def missing(*_: object, **__: object) -> None:
        raise CompilerMissingError("no C++ compiler found")

    monkeypatch.setattr(native, "operators", missing)
    with pytest.raises(CompilerMissingError, match="no C\\+\\+ compiler"):
        rollout([[1.0] * 9], device="cpu", features="dt")
