"""Rollouts: the engines agree bit for bit, however a rollout is split, shared or threaded."""

from __future__ import annotations

import pytest
import torch
from engine_games import all_engines, assert_equal, weights_for

from kernels.loader.toolchain import CompilerMissingError
from tetris.controller import resolve
from tetris.feature_sets import feature_names
from tetris.rollouts import Rollout, rollout
from tetris.rules import Rules

BOARDS = [(10, 20), (10, 10), (4, 4), (4, 24), (7, 13), (5, 7)]
PIECES = ["uniform", "bag", "SZ"]


@pytest.mark.parametrize("clear_on_overflow", [False, True])
@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("board", BOARDS, ids=lambda board: f"{board[0]}x{board[1]}")
def test_cpu_plays_as_python_does(board: tuple[int, int], pieces: str, clear_on_overflow: bool) -> None:
    rules = Rules(*board, clear_on_overflow=clear_on_overflow, pieces=pieces)
    assert_equal(*all_engines(weights_for("dt", board[0]), rules, 2, 5, features="dt"), decisions=60)


@pytest.mark.parametrize("piece", "IOTZSJL")
def test_each_piece_alone_is_played_as_python_does(piece: str) -> None:
    weights = torch.randn(6, 9, generator=torch.Generator().manual_seed(ord(piece)))
    python = Rollout(weights, Rules(10, 10, pieces=piece), 1, 2, "python", features="dt")
    assert_equal(
        python, Rollout(weights, Rules(10, 10, pieces=piece), 1, 2, "cpu", features="dt"), decisions=40
    )


@pytest.mark.parametrize("height", [9, 10, 11, 12, 13, 16, 20])
def test_wells_as_deep_as_the_stack_agree(height: int) -> None:
    # An upright piece on the stack makes the well beside it four cells deeper than the stack is high.
    weights = torch.randn(8, 9, generator=torch.Generator().manual_seed(height))
    games = all_engines(weights, Rules(10, 24, pieces="IT"), 2, 4, features="dt")
    for game in games:
        game._columns[:] = (1 << height) - 1
        game._columns[:, 0, 0] = game._columns[:, 1, 4] = 0
    assert_equal(*games, decisions=8)


@pytest.mark.parametrize(
    "features", ["dellacherie", "bcts", "dt_surface", "dt_columns", "dt_steps", "bertsekas", "bdu"]
)
@pytest.mark.parametrize("board", [(10, 12), (10, 20)], ids=["10x12", "10x20"])
def test_every_feature_set_agrees(features: str, board: tuple[int, int]) -> None:
    rules = Rules(*board)
    weights = weights_for(features, board[0])
    python = Rollout(weights, rules, 1, 11, "python", features=features)
    assert_equal(python, Rollout(weights, rules, 1, 11, "cpu", features=features), decisions=120)


STEPS = (
    "step_0_1, holes, step_2_6, step_1_0",
    "max_height, step_pair_0_2_4, step_1_2, step_pair_1_3_2, step_1_4",
)


@pytest.mark.parametrize("features", [*STEPS, "dt_step_pairs"])
@pytest.mark.parametrize("board", [(4, 9), (5, 20)], ids=lambda board: f"{board[0]}x{board[1]}")
def test_classes_of_steps_agree(features: str, board: tuple[int, int]) -> None:
    rules = Rules(*board, clear_on_overflow=board == (4, 9))
    count = len(feature_names(features, rules.width))
    weights = torch.randn(6, count, generator=torch.Generator().manual_seed(count))
    assert_equal(*all_engines(weights, rules, 2, 4, features=features), decisions=80)


@pytest.mark.parametrize("board", [(4, 9), (7, 24), (10, 12)], ids=lambda board: f"{board[0]}x{board[1]}")
@pytest.mark.parametrize(
    "features",
    ["column_height_1", "bumpiness, height_difference_2", "height_difference_0, holes, column_height_3"],
)
def test_features_of_columns_agree_in_any_company(features: str, board: tuple[int, int]) -> None:
    weights = torch.randn(3, len(feature_names(features)), generator=torch.Generator().manual_seed(5))
    assert_equal(*all_engines(weights, Rules(*board), 2, 8, features=features), decisions=60)


@pytest.mark.parametrize("board", [(10, 12), (4, 9), (7, 24)], ids=lambda board: f"{board[0]}x{board[1]}")
def test_each_feature_alone_decides_as_in_python(board: tuple[int, int]) -> None:
    alone = torch.eye(len(feature_names("dt_full")))
    games = all_engines(torch.cat([alone, -alone]), Rules(*board), 1, 6, features="dt_full")
    assert_equal(*games, decisions=30)


@pytest.mark.parametrize("features", ["dt", "dt_full", "bertsekas"])
@pytest.mark.parametrize(
    "board", [(10, 20), (10, 16), (10, 10), (6, 22)], ids=lambda board: f"{board[0]}x{board[1]}"
)
@pytest.mark.parametrize("clear_on_overflow", [False, True])
def test_vectors_play_as_the_portable_path_does_for_long(
    board: tuple[int, int], clear_on_overflow: bool, features: str
) -> None:
    rules = Rules(*board, clear_on_overflow=clear_on_overflow)
    weights = weights_for(features, board[0], 7)
    for i, name in enumerate(("dt20", "bcts", "bertsekas"), start=-3):
        good = resolve(name)
        known = dict(zip(feature_names(good.features), good.weights, strict=True))
        weights[i] = torch.tensor([known.get(feature, 0.0) for feature in feature_names(features, board[0])])
    fast = Rollout(weights, rules, 4, 3, "cpu", features=features)
    portable = Rollout(weights, rules, 4, 3, "cpu", features=features, portable=True)
    assert_equal(fast, portable, decisions=4000)


def test_splitting_a_rollout_changes_nothing() -> None:
    weights, rules = weights_for("dt", 10), Rules(10, 12, pieces="bag")
    whole, split = (Rollout(weights, rules, 3, 9, "cpu", features="dt") for _ in range(2))
    for decisions in (1, 6, 0, 393):
        split.advance(decisions)
    expected, result = whole.advance(400), split.advance(0)
    assert torch.equal(expected.lines, result.lines)
    assert torch.equal(whole.boards, split.boards)


@pytest.mark.parametrize("board", [(4, 4), (10, 10), (6, 20)], ids=lambda board: f"{board[0]}x{board[1]}")
@pytest.mark.parametrize("games", [1, 3])
def test_streams_stop_alike_on_every_engine(board: tuple[int, int], games: int) -> None:
    weights = torch.cat([torch.zeros(1, 9), weights_for("dt", board[0])])
    engines = all_engines(weights, Rules(*board), 3, 5, features="dt", games_per_stream=games)
    for decisions in (30, 0, 90):
        assert_equal(*engines, decisions=decisions)
    for engine in engines:
        assert torch.equal(engine._made, engines[0]._made)
        assert int(engine.advance(0).decisions[0]) < 3 * 120  # zero weights pile up in the left corner


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


def test_the_highest_seed_and_stream_agree() -> None:
    weights, rules = weights_for("dt", 10), Rules(10, 10)
    arguments = {"features": "dt", "first_stream": 1 << 62}
    python = Rollout(weights, rules, 1, (1 << 64) - 1, "python", **arguments)
    assert_equal(python, Rollout(weights, rules, 1, (1 << 64) - 1, "cpu", **arguments), decisions=50)


def test_scores_that_overflow_are_decided_alike() -> None:
    weights = torch.full((2, 9), 3e38)
    weights[1, ::2] *= -1
    python = Rollout(weights, Rules(10, 10), 2, 5, "python", features="dt")
    assert_equal(python, Rollout(weights, Rules(10, 10), 2, 5, "cpu", features="dt"), decisions=60)


def test_check_is_called_and_may_end_the_rollout() -> None:
    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        rollout(weights_for("dt", 10), Rules(10, 10), 1, 100, 0, "python", features="dt", check=stop)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": [[1.0] * 8]}, r"expected weights of shape \(population, 9\), got \(1, 8\)"),
        ({"weights": [1.0] * 9}, r"expected weights of shape \(population, 9\), got \(9,\)"),
        ({"weights": torch.zeros(0, 9)}, r"expected weights of shape \(population, 9\), got \(0, 9\)"),
        ({"weights": [[float("nan")] * 9]}, "expected finite float32 weights"),
        ({"weights": [[1e39] * 9]}, "expected finite float32 weights"),
        ({"streams": 0}, "expected streams from 1"),
        ({"decisions": -1}, "expected decisions from 0"),
        ({"seed": -1}, "expected seed from 0"),
        ({"games_per_stream": 0}, "expected games_per_stream from 1"),
        ({"device": "tpu"}, "expected device to be cpu, cuda or python, got 'tpu'"),
    ],
)
def test_bad_input_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rollout(**{"weights": [[1.0] * 9], "device": "python", "features": "dt", **arguments})


def test_without_a_compiler_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from tetris import native

    def missing(*_: object, **__: object) -> None:
        raise CompilerMissingError("no C++ compiler found")

    monkeypatch.setattr(native, "operators", missing)
    with pytest.raises(CompilerMissingError, match="no C\\+\\+ compiler"):
        rollout([[1.0] * 9], device="cpu", features="dt")
