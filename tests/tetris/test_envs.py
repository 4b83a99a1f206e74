"""The Gymnasium environment: its interface, and its games against those of the reference implementation."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tetris import Rules, published
from tetris.envs import IDS, PlacementFeatures, TetrisEnv
from tetris.envs.placements import action_count, action_mask, placement
from tetris.game.decisions import Rows, after_states, play
from tetris.game.feature_sets import feature_names
from tetris.game.features import feature_values
from tetris.game.piece_stream import PieceStream
from tetris.game.policy import Player
from tetris.view.images import PALETTE

NO_WINDOW = importlib.util.find_spec("pygame") is None  # the checker draws in every mode, "human" among them
RULES = (
    Rules(10, 20),
    Rules(10, 10, clear_on_overflow=True),
    Rules(4, 4),
    Rules(7, 24, pieces="bag"),
    Rules(5, 8, clear_on_overflow=True, pieces="SZ"),
)


def make(rules: Rules, **options: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CemTetris/Tetris-v0", **rules.to_dict(), **options)


def cells(rows: Rows, rules: Rules) -> list[list[int]]:
    """The visible part of a stack, cell by cell."""
    padded = [*rows, *[0] * rules.height][: rules.height]
    return [[row >> column & 1 for column in range(rules.width)] for row in padded]


@pytest.mark.parametrize(
    ("identifier", "render_mode"), [*zip(IDS, 3 * (None, "ansi", "rgb_array"), strict=False)]
)
def test_every_variant_passes_the_checker_without_a_warning(identifier: str, render_mode: str | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(identifier, render_mode=render_mode).unwrapped, skip_render_check=NO_WINDOW)


@pytest.mark.parametrize("rules", RULES[1:4], ids=str)
def test_random_legal_play_is_that_of_the_engine(rules: Rules) -> None:
    env = make(rules)
    env.action_space.seed(3)
    pieces = PieceStream(rules, 11, 5)
    observation, info = env.reset(seed=11, options={"stream": 5})
    rows: Rows = ()
    ended = 0
    for t in range(200):
        assert observation["piece"] == pieces[t]
        assert np.array_equal(observation["board"], cells(rows, rules))
        # The k-th action that the mask allows is the k-th placement of the engine.
        allowed = np.flatnonzero(info["action_mask"])
        afters = list(after_states(rows, pieces[t], rules))
        assert len(allowed) == len(afters)
        action = env.action_space.sample(mask=info["action_mask"])
        after = afters[int(np.searchsorted(allowed, action))]
        observation, reward, terminated, truncated, info = env.step(action)
        assert (reward, terminated, truncated) == (after.lines, after.game_over, False)
        assert observation in env.observation_space
        rows = after.rows
        if terminated:
            ended += 1
            assert np.array_equal(observation["board"], cells(rows, rules))
            observation, info = env.reset()
            rows = ()
    assert ended > 2


def test_an_action_that_the_mask_excludes_is_played_as_one_that_it_allows() -> None:
    for width in (4, 10):
        for piece in range(7):
            mask = action_mask(piece, width)
            for action in range(action_count(width)):
                shape, column = placement(action, piece, width)
                stands_for = shape.orientation * width + column
                assert mask[stands_for]
                assert stands_for == action or not mask[action]


def test_the_mask_can_be_asked_for_at_any_time() -> None:
    env = TetrisEnv()
    with pytest.raises(gymnasium.error.ResetNeeded, match="to be called first"):
        env.action_masks()
    _, info = env.reset(seed=1)
    for _ in range(3):
        mask = env.action_masks()
        assert mask.dtype == np.bool_
        assert np.array_equal(mask, info["action_mask"] == 1)
        *_, info = env.step(int(mask.argmax()))


def test_a_seed_decides_the_pieces_and_a_reset_goes_on_with_them() -> None:
    env = gymnasium.make("CemTetris/Tetris-v0").unwrapped
    assert isinstance(env, TetrisEnv)
    pieces = PieceStream(env.rules, (1 << 64) - 1, 0)
    env.reset(seed=(1 << 64) - 1)
    seen = [env.piece]
    for t in range(60):
        if t % 7 == 6 or env.is_over:
            env.reset()
            assert env.rows == ()
        env.step(0)
        seen.append(env.piece)
    assert seen == [pieces[t] for t in range(61)]


def test_without_a_seed_games_differ() -> None:
    pieces = {int(TetrisEnv().reset()[0]["piece"]) for _ in range(30)}
    assert len(pieces) > 1  # wrong once in 7^29


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"width": 3}, ValueError, "expected the board's width from 4 to 10, got 3"),
        ({"pieces": "X"}, ValueError, "got 'X'"),
        ({"render_mode": "text"}, ValueError, "one of ansi, human, rgb_array; got 'text'"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TetrisEnv(**arguments)


@pytest.mark.parametrize(
    ("seed", "options", "error", "message"),
    [
        (-1, None, ValueError, "expected seed from 0 to 18446744073709551615, got -1"),
        (1, {"stream": "a"}, TypeError, "expected stream to be an int, got 'a'"),
        (1, {"strem": 2}, ValueError, "option of reset.*got 'strem'; did you mean 'stream'"),
    ],
)
def test_a_reset_by_what_it_does_not_know_is_refused(
    seed: Any, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        TetrisEnv().reset(seed=seed, options=options)


@pytest.mark.parametrize("action", [2.7, "3", None])
def test_an_action_is_a_whole_number(action: Any) -> None:
    env = TetrisEnv()
    env.reset(seed=1)
    with pytest.raises(TypeError, match="expected an action to be a whole number"):
        env.step(action)


def test_bad_calls_are_refused() -> None:
    env = TetrisEnv()
    with pytest.raises(gymnasium.error.ResetNeeded, match="got step"):
        env.step(0)
    with pytest.raises(gymnasium.error.ResetNeeded, match="to be called first"):
        _ = env.piece
    with pytest.raises(ValueError, match="expected a seed with the option stream, got stream 3 alone"):
        env.reset(options={"stream": 3})
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"expected an action of Discrete\(40\), got 40"):
        env.step(40)
    with pytest.raises(ValueError, match="18446744073709551616"):
        env.reset(seed=1 << 64)


@pytest.mark.parametrize("rules", RULES[1:3], ids=str)
def test_features_are_those_of_every_after_state(rules: Rules) -> None:
    env = PlacementFeatures(make(rules), "dellacherie")
    env.action_space.seed(1)
    observation, info = env.reset(seed=2)
    for _ in range(40):
        inner = env.unwrapped
        assert isinstance(inner, TetrisEnv)
        assert observation in env.observation_space
        mask = info["action_mask"] != 0
        afters = list(after_states(inner.rows, inner.piece, rules))
        expected = np.array([feature_values(after, env.names) for after in afters], dtype=np.float32)
        expected[[after.game_over for after in afters]] = 0
        assert np.array_equal(observation["features"][mask], expected)
        assert not observation["features"][~mask].any()
        assert info["ends_game"][mask].tolist() == [after.game_over for after in afters]
        action = env.action_space.sample(mask=info["action_mask"])
        observation, _, terminated, _, info = env.step(action)
        if terminated:
            assert not observation["features"].any()
            observation, info = env.reset()


def test_a_controller_that_looks_at_the_features_plays_as_in_a_rollout() -> None:
    rules, controller = Rules(8, 8), published("dellacherie")
    weights = controller.played_weights
    names = feature_names("dellacherie")
    env = PlacementFeatures(make(rules), "dellacherie")
    observation, info = env.reset(seed=7, options={"stream": 3})
    lines = games = 0.0
    for _ in range(150):
        values = observation["features"] @ weights
        values[(info["action_mask"] == 0) | (info["ends_game"] == 1)] = -np.inf
        observation, reward, terminated, _, info = env.step(int(values.argmax()))
        lines += reward
        if terminated:
            games += 1
            observation, info = env.reset()
    inner = env.unwrapped
    assert isinstance(inner, TetrisEnv)
    assert (inner.rows, lines, games, 150) == play(
        (), PieceStream(rules, 7, 3), Player(names, weights), rules, 0, 150
    )
    assert inner.is_over is False


def test_features_of_many_single_environments() -> None:
    envs = gymnasium.make_vec(
        "CemTetris/Tetris-v0", num_envs=2, vectorization_mode="sync", wrappers=[PlacementFeatures]
    )
    observation, _ = envs.reset(seed=1)
    assert observation["features"].shape == (2, 40, 9)


def test_features_need_this_environment() -> None:
    with pytest.raises(TypeError, match="expected a TetrisEnv, got"):
        PlacementFeatures(gymnasium.make("CartPole-v1"))
    with pytest.raises(ValueError, match="did you mean 'holes'"):
        PlacementFeatures(gymnasium.make("CemTetris/Tetris-v0"), "hole")


def test_a_board_is_drawn_in_characters() -> None:
    env = make(Rules(4, 4), render_mode="ansi")
    env.reset(seed=0)
    inner = env.unwrapped
    assert isinstance(inner, TetrisEnv)
    inner.rows = (0b0111, 0b0001)
    lines = str(env.render()).splitlines()
    assert lines[0] == f"piece {'IOTZSJL'[inner.piece]}"
    assert lines[-5:] == ["| . . . .|", "| . . . .|", "|[] . . .|", "|[][][] .|", "+--------+"]
    assert [sum(line.count(mark) for line in lines) for mark in ("[]", "##")] == [4, 4]


def test_a_frame_shows_the_wall_and_the_piece() -> None:
    env = make(Rules(10, 12), render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    assert isinstance(before, np.ndarray)
    assert (before.shape, before.dtype) == ((16 * 16, 160, 3), np.uint8)
    env.step(0)
    after = env.render()
    assert not np.array_equal(before, after)
    env.step(0)
    assert not np.array_equal(after, env.render())
    assert {tuple(color) for color in env.render().reshape(-1, 3)} <= {tuple(color) for color in PALETTE}


def test_render_without_a_mode_says_so() -> None:
    env = TetrisEnv()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="without specifying any render mode"):
        assert env.render() is None


def test_a_video_can_be_recorded(tmp_path: Path) -> None:
    pytest.importorskip("moviepy")
    env = gymnasium.wrappers.RecordVideo(
        make(Rules(10, 10), render_mode="rgb_array"), str(tmp_path / "videos")
    )
    env.reset(seed=1)
    for _ in range(100):
        if env.step(0)[2]:
            break
    env.close()
    (video,) = tmp_path.rglob("*.mp4")
    assert video.stat().st_size > 1000


def runs(code: str) -> bool:
    """Whether a new interpreter gets through a program."""
    ended = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False)
    return ended.returncode == 0


def test_the_ids_are_found_through_the_module_s_name() -> None:
    code = "import gymnasium; gymnasium.make('tetris.envs:CemTetris/Tetris-v0')"
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False).returncode
        == 0
    )


def test_returned_arrays_are_the_caller_s() -> None:
    env = TetrisEnv()
    results = [env.reset(seed=1), *(env.step(0) for _ in range(3))]
    for one, other in pairwise(results):
        assert one[0]["board"] is not other[0]["board"]
        assert one[-1]["action_mask"] is not other[-1]["action_mask"]  # type: ignore[index]
