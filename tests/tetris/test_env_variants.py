"""The variants of the single environment: preview, hold slot, garbage rows, the guideline's points."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tetris import Rules
from tetris.envs import IDS, REFERENCE_IDS, PlacementFeatures, TetrisEnv
from tetris.envs.placements import action_count, action_mask, placement
from tetris.envs.tetris_env import EMPTY_HOLD, REWARDS
from tetris.game.decisions import Rows, landing_row, place
from tetris.game.features import column_heights
from tetris.game.garbage import hole_column, risen
from tetris.game.piece_stream import PieceStream
from tetris.game.rules import guideline_points
from tetris.view.game_view import TEXT
from tetris.view.glyphs import text_pixels
from tetris.view.images import PALETTE

NO_WINDOW = importlib.util.find_spec("pygame") is None  # the checker draws in every mode, "human" among them

EVERYTHING: dict[str, Any] = {
    "width": 6,
    "height": 12,
    "pieces": "bag",
    "pieces_known": 4,
    "hold": True,
    "garbage_every": 5,
    "reward": "points",
}


@pytest.mark.parametrize(
    ("identifier", "render_mode"), [*zip(REFERENCE_IDS, (None, "ansi", "rgb_array"), strict=True)]
)
def test_every_variant_passes_the_checker_without_a_warning(identifier: str, render_mode: str | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(identifier, render_mode=render_mode).unwrapped, skip_render_check=NO_WINDOW)


def history(env: gymnasium.Env[Any, Any], steps: int, seed: int) -> list[Any]:
    """What a game of random legal actions shows; a game over begins the next game."""
    env.action_space.seed(seed)
    observation, info = env.reset(seed=seed)
    shown: list[Any] = []
    for _ in range(steps):
        action = env.action_space.sample(mask=info["action_mask"])
        observation, reward, terminated, truncated, info = env.step(action)
        assert observation in env.observation_space
        shown.append((action, observation, reward, terminated, truncated, info["action_mask"].tolist()))
        if terminated:
            observation, info = env.reset()
    return [(action, {k: v.tolist() for k, v in seen.items()}, *rest) for action, seen, *rest in shown]


@pytest.mark.parametrize("identifier", REFERENCE_IDS)
def test_a_seed_and_the_actions_decide_the_game(identifier: str) -> None:
    first, second = (history(gymnasium.make(identifier), 300, 5) for _ in range(2))
    assert first == second
    assert (
        any(terminated for _, _, _, terminated, _, _ in first) or "KeyPress" in identifier
    )  # games of 300 keys
    assert first != history(gymnasium.make(identifier), 300, 6)


@pytest.mark.parametrize("identifier", REFERENCE_IDS)
def test_many_are_stepped_one_after_another(identifier: str) -> None:
    envs = gymnasium.make_vec(identifier, num_envs=2)
    _, infos = envs.reset(seed=1)
    assert infos["action_mask"].shape[0] == 2
    envs.step(infos["action_mask"].argmax(axis=1))


def test_all_variants_at_once_play_by_the_rules() -> None:
    env = TetrisEnv(**EVERYTHING)
    env.action_space.seed(1)
    observation, info = env.reset(seed=9, options={"stream": 2})
    rules, count = env.rules, action_count(6)
    pieces = PieceStream(rules, 9, 2)
    rows: Rows = ()
    piece, held, time, placed, garbage, games = pieces[0], None, 1, 0, 0, 0
    for _ in range(400):
        assert (observation["piece"], observation["hold"]) == (piece, EMPTY_HOLD if held is None else held)
        assert observation["next"].tolist() == [pieces[time], pieces[time + 1], pieces[time + 2]]
        assert observation["since_garbage"] == placed % 5
        swapped = pieces[time] if held is None else held
        assert np.array_equal(info["action_mask"][:count], action_mask(piece, 6))
        assert np.array_equal(info["action_mask"][count:], action_mask(swapped, 6))
        action = int(env.action_space.sample(mask=info["action_mask"]))
        if action >= count:
            time += held is None
            piece, held = swapped, piece
        shape, column = placement(action % count, piece, 6)
        after = place(rows, shape, column, landing_row(column_heights(rows, 6), shape, column), rules)
        rows, over, placed = after.rows, after.game_over, placed + 1
        if placed % 5 == 0 and not over:
            rows = risen(rows, hole_column(rules, 9, 2, garbage), rules)
            garbage, over = garbage + 1, len(rows) > 12
        piece, time = pieces[time], time + 1
        observation, reward, terminated, _, info = env.step(action)
        assert (env.rows, reward, terminated) == (rows, guideline_points(after.lines), over)
        if terminated:
            observation, info = env.reset()
            rows, held, placed, games = (), None, 0, games + 1
    assert games > 5


def test_a_reset_in_the_middle_of_a_game_goes_on_with_the_last_piece_of_the_stream() -> None:
    env = TetrisEnv(pieces_known=2, hold=True)
    pieces = PieceStream(env.rules, 3, 0)
    env.reset(seed=3)
    env.step(action_count(10))  # holds piece 0, plays piece 1
    env.step(action_count(10))  # holds piece 2, plays piece 0
    assert env.piece == pieces[3]
    observation, _ = env.reset()
    assert (observation["piece"], observation["hold"]) == (pieces[3], EMPTY_HOLD)
    assert observation["next"].tolist() == [pieces[4]]


def test_garbage_rows_have_one_hole_anywhere_and_are_not_told_by_the_pieces() -> None:
    rules = Rules(7, 20)
    holes = [hole_column(rules, 1, 0, n) for n in range(700)]
    assert np.bincount(holes, minlength=7).min() > 70  # 100 expected: below 70 once in some hundred seeds
    assert holes != [PieceStream(rules, 1, 0)[n] for n in range(700)]
    assert risen((0b1,), 2, rules) == (0b1111011, 0b1)


def test_garbage_that_lifts_the_stack_above_the_board_ends_the_game() -> None:
    env = TetrisEnv(height=4, pieces="I", garbage_every=1)
    env.reset(seed=0)
    observation, reward, terminated, *_ = env.step(0)  # four rows high, then lifted
    assert (terminated, reward, len(env.rows)) == (True, 0.0, 5)
    assert observation["board"].sum() == 12


def test_points_are_those_of_the_guideline() -> None:
    assert [guideline_points(lines) for lines in range(5)] == [0, 100, 300, 500, 800]
    env = TetrisEnv(pieces="I", reward="points")
    env.reset(seed=0)
    rewards = [env.step(column)[1] for column in range(10)]
    assert rewards == [0.0] * 9 + [800.0]


@pytest.mark.parametrize(("name", "reward"), [*zip(2 * ("Tetris", "Tetris-KeyPress"), REWARDS, strict=True)])
def test_every_reward_passes_the_checker_without_a_warning(name: str, reward: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(
            gymnasium.make(f"CemTetris/{name}-v0", reward=reward).unwrapped, skip_render_check=NO_WINDOW
        )


@pytest.mark.parametrize(
    ("reward", "expected"), [("pieces", [1.0, 1.0, 0.0]), ("survival", [0.0, 0.0, -1.0])]
)
def test_the_piece_that_ends_the_game_is_not_rewarded(reward: str, expected: list[float]) -> None:
    env = TetrisEnv(height=5, pieces="O", reward=reward)
    env.reset(seed=0)
    assert [env.step(0)[1] for _ in range(3)] == expected
    raised = TetrisEnv(height=4, pieces="I", garbage_every=1, reward=reward)
    raised.reset(seed=0)
    assert raised.step(0)[1:3] == (expected[-1], True)  # by a garbage row


def test_features_of_placements_after_a_swap() -> None:
    env = PlacementFeatures(gymnasium.make("CemTetris/Tetris-Hold-v0"), "dellacherie")
    plain = PlacementFeatures(gymnasium.make("CemTetris/Tetris-v0"), "dellacherie")
    observation, _ = env.reset(seed=4)
    assert observation in env.observation_space
    assert np.array_equal(observation["features"][:40], plain.reset(seed=4)[0]["features"])
    inner = plain.unwrapped
    assert isinstance(inner, TetrisEnv)
    plain.step(np.int64(0))
    inner.rows = ()  # the next piece on an empty board
    expected = plain._extended({}, {})[0]["features"]
    assert np.array_equal(observation["features"][40:], expected)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"pieces_known": 8}, ValueError, "expected pieces_known from 1 to 7, got 8"),
        ({"hold": True}, ValueError, "expected pieces_known of at least 2 with a hold slot, got 1"),
        ({"reward": np.array(["lines", "points"])}, TypeError, "expected reward to be a str, got array"),
        ({"features": "dt"}, ValueError, 'PlacementFeatures.*vectorization_mode="sync", wrappers='),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TetrisEnv(**arguments)


def test_the_way_to_features_of_many_games_with_a_hold_slot_is_named() -> None:
    make: Any = functools.partial(gymnasium.make_vec, "CemTetris/Tetris-Hold-v0", 2)
    with pytest.raises(ValueError, match=r"got 'holes,wells': wrap it in tetris.envs.Placement") as refused:
        make(features="holes,wells")
    (named,) = re.findall(r"wrappers=\[(.*?\))\]", str(refused.value))
    envs = make(vectorization_mode="sync", wrappers=[eval(named, {"PlacementFeatures": PlacementFeatures})])
    assert envs.reset(seed=1)[0]["features"].shape == (2, 80, 2)


def test_text_and_frame_show_the_held_and_the_next_pieces() -> None:
    env = TetrisEnv(pieces="bag", pieces_known=3, hold=True, render_mode="ansi")
    env.reset(seed=1)
    letters = ["IOTZSJL"[PieceStream(env.rules, 1, 0)[t]] for t in range(5)]
    current, first, second, third, _ = letters
    assert str(env.render()).splitlines()[0] == f"piece {current}, next {first} {second}, hold -"
    env.step(action_count(10))
    assert str(env.render()).splitlines()[0] == f"piece {second}, next {third} {letters[4]}, hold {current}"
    env.render_mode = "rgb_array"
    frame = env.render()
    assert frame.shape == (16 * 24, 16 * 15, 3)


def test_every_following_piece_stands_under_its_number() -> None:
    env = TetrisEnv(pieces_known=7, hold=True, render_mode="rgb_array")
    env.reset(seed=1)
    frame = env.render()
    assert isinstance(frame, np.ndarray)
    labels = ["HOLD", "NEXT", "NEXT 2", "NEXT 3", "NEXT 4", "NEXT 5", "NEXT 6"]  # four in a column
    for slot, label in enumerate(labels):
        top, left = 80 * (slot % 4), 160 + 80 * (slot // 4)
        head = frame[top + 3 : top + 16, left + 8 : left + 80]
        expected = np.zeros(head.shape[:2], dtype=bool)
        pixels = text_pixels(label, 2)
        expected[: pixels.shape[0], : pixels.shape[1]] = pixels
        assert np.array_equal((head == PALETTE[3 * TEXT]).all(axis=2), expected)


@pytest.mark.parametrize("identifier", [IDS[0], *REFERENCE_IDS])
def test_a_window_shows_every_step(identifier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pygame = pytest.importorskip("pygame")
    env = gymnasium.make(identifier, render_mode="human")
    monkeypatch.setitem(env.unwrapped.metadata, "render_fps", 1000)
    drawn = gymnasium.make(identifier, render_mode="rgb_array")
    for one in (env, drawn):
        one.reset(seed=1)
        for _ in range(3):
            one.step(1)
    shown = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
    assert np.array_equal(shown, drawn.render())
    assert env.render() is None
    env.close()
    env.close()
    assert not pygame.display.get_init()


def test_a_window_without_pygame_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    env = TetrisEnv(render_mode="human")
    with pytest.raises(gymnasium.error.DependencyNotInstalled, match=r"cem-tetris\[play\]"):
        env.reset()
    env.close()
