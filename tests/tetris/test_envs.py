"""The Gymnasium environment: its interface, and its games against those of the reference
implementation."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tetris import Rules
from tetris.envs import IDS, REFERENCE_IDS, PlacementFeatures, TetrisEnv
from tetris.envs.rendering import EMPTY_HOLD
from tetris.envs.tetris_env import REWARDS
from tetris.game.decisions import Rows, after_states
from tetris.game.features import feature_values
from tetris.game.piece_stream import PieceStream, hole_column
from tetris.game.rules import GUIDELINE_POINTS
from tetris.view.game_view import STACK, UNKNOWN
from tetris.view.images import PALETTE

EVERY_ID = (*IDS, *REFERENCE_IDS)
TORCHRLS_KEYS = {"action", "done", "next", "reward", "terminated", "truncated"}
VARIANTS: dict[str, dict[str, Any]] = {
    "clear": {"height": 10, "clear_on_overflow": True},
    "smallest": {"width": 4, "height": 4},
    "bag": {"width": 7, "height": 24, "pieces": "bag", "reward": "survival"},
    "all": {
        **{"width": 6, "height": 12, "pieces": "bag", "pieces_known": 4},
        **{"hold": True, "garbage_every": 5, "reward": "points"},
    },
}


def cells(rows: Rows, rules: Rules) -> list[list[int]]:
    """The visible part of a stack, cell by cell."""
    padded = [*rows, *[0] * rules.height][: rules.height]
    return [[row >> column & 1 for column in range(rules.width)] for row in padded]


@pytest.mark.parametrize(
    ("identifier", "render_mode", "reward"),
    [*zip(EVERY_ID, 4 * (None, "ansi", "rgb_array"), 3 * REWARDS, strict=False)],
)
def test_every_id_passes_the_checker_without_a_warning(
    identifier: str, render_mode: str | None, reward: str
) -> None:
    env = gymnasium.make(identifier, render_mode=render_mode, reward=reward)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


@pytest.mark.parametrize("identifier", EVERY_ID)
def test_no_key_of_an_observation_is_one_that_torchrl_uses_itself(identifier: str) -> None:
    observation, _ = gymnasium.make(identifier).reset(seed=1)
    assert not set(observation) & TORCHRLS_KEYS


@pytest.mark.parametrize("options", [*VARIANTS.values()], ids=[*VARIANTS])
def test_random_legal_play_is_by_the_rules(options: dict[str, Any]) -> None:
    seed, stream = (1 << 64) - 1, 5
    env = TetrisEnv(**options)
    env.action_space.seed(1)
    rules, count = env.rules, 4 * env.rules.width
    pieces = PieceStream(rules, seed, stream)
    observation, info = env.reset(seed=seed, options={"stream": stream})
    rows: Rows = ()
    piece, held, time, placed, garbage, games = pieces[0], None, 1, 0, 0, 0
    for step in range(400):
        assert observation in env.observation_space
        assert observation["piece"] == piece
        assert np.array_equal(observation["board"], cells(rows, rules))
        choices = [(piece, held, time)]
        if env.pieces_known > 1:
            ahead = range(env.pieces_known - 1)
            assert observation["next_pieces"].tolist() == [pieces[time + i] for i in ahead]
        if env.has_hold:
            assert observation["hold"] == (EMPTY_HOLD if held is None else held)
            choices.append(
                (pieces[time], piece, time + 1) if held is None else (held, piece, time)
            )
        if env.garbage_every is not None:
            assert observation["since_garbage"] == placed % env.garbage_every
        assert env.action_masks().dtype == np.bool_
        assert np.array_equal(env.action_masks(), info["action_mask"] == 1)
        action = int(env.action_space.sample(mask=info["action_mask"]))
        allowed = [np.flatnonzero(part) for part in info["action_mask"].reshape(-1, count)]
        assert [len(part) for part in allowed] == [
            sum(1 for _ in after_states(rows, each, rules)) for each, *_ in choices
        ]
        piece, held, time = choices[action // count]
        # The k-th action that the mask allows is the k-th placement of the engine.
        k = int(np.searchsorted(allowed[action // count], action % count))
        after = list(after_states(rows, piece, rules))[k]
        rows, over, placed = after.rows, after.game_over, placed + 1
        if env.garbage_every is not None and placed % env.garbage_every == 0 and not over:
            rows = (rules.full_row & ~(1 << hole_column(rules, seed, stream, garbage)), *rows)
            garbage, over = garbage + 1, len(rows) > rules.height
        piece, time = pieces[time], time + 1
        observation, reward, terminated, truncated, info = env.step(action)
        expected = {
            "lines": after.lines,
            "points": GUIDELINE_POINTS[after.lines],
            "survival": -over,
        }
        assert (reward, terminated, truncated) == (expected[env.reward], over, False)
        assert np.array_equal(observation["board"], cells(rows, rules))
        if (
            over or step % 97 == 96
        ):  # in the middle of a game, too, with the last piece of the stream
            observation, info = env.reset()
            rows, held, placed, games, piece = (), None, 0, games + 1, pieces[time - 1]
    assert games > 5


def test_a_swapped_piece_does_not_outlive_its_game() -> None:
    env = TetrisEnv(pieces_known=2, hold=True)
    pieces = PieceStream(env.rules, 3, 0)
    env.reset(seed=3)
    env.step(40)  # holds piece 0, plays piece 1
    env.step(40)  # holds piece 2, plays piece 0
    assert env.piece == pieces[3]
    observation, _ = env.reset()
    assert (observation["piece"], observation["hold"]) == (pieces[3], EMPTY_HOLD)
    assert observation["next_pieces"].tolist() == [pieces[4]]


def test_garbage_rows_have_one_hole_anywhere_and_do_not_depend_on_the_pieces() -> None:
    rules = Rules(7, 20)
    holes = [hole_column(rules, 1, 0, n) for n in range(700)]
    assert (
        np.bincount(holes, minlength=7).min() > 70
    )  # 100 expected: below 70 once in some hundred seeds
    assert holes != [PieceStream(rules, 1, 0)[n] for n in range(700)]


@pytest.mark.parametrize(
    ("reward", "expected"), [("pieces", [1.0, 1.0, 0.0]), ("survival", [0.0, 0.0, -1.0])]
)
def test_the_piece_that_ends_the_game_is_not_rewarded(
    reward: str, expected: list[float]
) -> None:
    env = TetrisEnv(height=5, pieces="O", reward=reward)
    env.reset(seed=0)
    assert [env.step(0)[1] for _ in range(3)] == expected
    raised = TetrisEnv(height=4, pieces="I", garbage_every=1, reward=reward)
    raised.reset(seed=0)
    observation, *ended = raised.step(0)[:3]  # four rows high, then lifted by a garbage row
    assert ended == [expected[-1], True]
    assert observation["board"].sum() == 12


def test_without_a_seed_games_differ() -> None:
    pieces = {int(TetrisEnv().reset()[0]["piece"]) for _ in range(30)}
    assert len(pieces) > 1  # wrong once in 7^29


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"render_mode": "text"}, "render_mode among ansi, rgb_array; got 'text'"),
        ({"reward": "line"}, "did you mean 'lines'"),
        ({"pieces_known": 8}, "expected pieces_known from 1 to 7, got 8"),
        ({"hold": True}, "expected pieces_known of at least 2 with a hold slot, got 1"),
    ],
)
def test_bad_arguments_raise(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TetrisEnv(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, "expected seed from 0 to 18446744073709551615, got -1"),
        ({"seed": 1, "options": {"strem": 2}}, "got 'strem'; did you mean 'stream'"),
        ({"options": {"stream": 3}}, "a seed with the option stream, got stream 3 alone"),
    ],
)
def test_bad_resets_raise(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TetrisEnv().reset(**arguments)


def test_bad_actions_raise_and_games_have_to_begin_first() -> None:
    env = TetrisEnv()
    with pytest.raises(gymnasium.error.ResetNeeded, match="got step"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"expected an action of Discrete\(40\), got 40"):
        env.step(40)
    with pytest.raises(TypeError):
        env.step(2.7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options", [{**VARIANTS["smallest"]}, {"height": 10, "hold": True, "pieces_known": 2}]
)
def test_features_are_those_of_every_after_state(options: dict[str, Any]) -> None:
    inner = TetrisEnv(**options)
    env = PlacementFeatures(inner, "dellacherie")
    env.action_space.seed(1)
    observation, info = env.reset(seed=2)
    count = 4 * inner.rules.width
    for _ in range(40):
        assert observation in env.observation_space
        for half, piece in enumerate((inner.piece, inner.swapped_piece)[: 1 + inner.has_hold]):
            part = slice(half * count, (half + 1) * count)
            mask, features = info["action_mask"][part] != 0, observation["features"][part]
            afters = list(after_states(inner.rows, piece, inner.rules))
            expected = np.array(
                [feature_values(after, env.names) for after in afters], dtype=np.float32
            )
            expected[[after.game_over for after in afters]] = 0
            assert np.array_equal(features[mask], expected)
            assert not features[~mask].any()
            assert info["ends_game"][part][mask].tolist() == [
                after.game_over for after in afters
            ]
        action = env.action_space.sample(mask=info["action_mask"])
        observation, _, terminated, _, info = env.step(action)
        if terminated:
            assert not observation["features"].any()
            observation, info = env.reset()


def test_features_need_this_environment() -> None:
    with pytest.raises(TypeError, match="expected a TetrisEnv, got"):
        PlacementFeatures(gymnasium.make("CartPole-v1"))
    with pytest.raises(ValueError, match="did you mean 'holes'"):
        PlacementFeatures(gymnasium.make("CemTetris/Tetris-v0"), "hole")


def test_a_board_is_drawn_in_characters() -> None:
    env = TetrisEnv(4, 4, render_mode="ansi")
    env.reset(seed=0)
    env.rows = (0b0111, 0b0001)
    lines = str(env.render()).splitlines()
    assert lines[0] == f"piece {'IOTZSJL'[env.piece]}"
    assert lines[-5:] == ["| . . . .|", "| . . . .|", "|[] . . .|", "|[][][] .|", "+--------+"]
    assert [sum(line.count(mark) for line in lines) for mark in ("[]", "##")] == [4, 4]


def test_render_without_a_mode_says_so() -> None:
    env = TetrisEnv()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="without specifying any render mode"):
        assert env.render() is None


@pytest.mark.parametrize(
    "name", ["Tetris-v0", "Tetris-Garbage-v0", "Tetris-Hold-v0", "Tetris-KeyPress-v0"]
)
def test_a_cell_has_the_colour_of_its_piece(name: str) -> None:
    env = gymnasium.make(
        f"CemTetris/{name}", height=8, width=4, pieces="O", render_mode="rgb_array"
    )
    observation, info = env.reset(seed=1)
    env.action_space.seed(1)
    shown, ended = set(), False
    while not ended:
        cells = np.asarray(env.render())[16 * 4 + 8 :: 16, 8 : 16 * 4 : 16][::-1]
        shown |= {tuple(color) for color in cells[observation["board"] == 1]}
        observation, _, ended, _, info = env.step(
            env.action_space.sample(mask=info["action_mask"])
        )
    grey = {tuple(PALETTE[3 * (STACK + UNKNOWN - 1)])} if "Garbage" in name else set()
    assert shown == {tuple(PALETTE[3 * (STACK + 1)])} | grey


def test_pieces_between_two_frames_are_grey() -> None:
    env = TetrisEnv(render_mode="rgb_array")
    env.reset(seed=1, options={"pieces": "OTS"})
    env.render()
    env.step(0)
    env.step(5)
    cells = np.asarray(env.render())[16 * 4 + 8 :: 16, 8 : 16 * 10 : 16]
    grey = PALETTE[3 * (STACK + UNKNOWN - 1)]
    assert (cells == grey).all(axis=2).sum() == 8


def test_returned_arrays_are_the_caller_s() -> None:
    env = TetrisEnv()
    observation, info = env.reset(seed=1)
    observation["board"][:], info["action_mask"][:] = 1, 0
    observation, info = env.reset(seed=1)
    assert not observation["board"].any()
    assert info["action_mask"].any()


def test_many_are_stepped_one_after_another() -> None:
    for identifier in REFERENCE_IDS:
        envs = gymnasium.make_vec(identifier, num_envs=2)
        _, infos = envs.reset(seed=1)
        assert infos["action_mask"].shape[0] == 2
        envs.step(infos["action_mask"].argmax(axis=1))


def test_text_and_frame_show_the_held_and_the_next_pieces() -> None:
    env = TetrisEnv(pieces="bag", pieces_known=3, hold=True, render_mode="ansi")
    env.reset(seed=1)
    letters = ["IOTZSJL"[PieceStream(env.rules, 1, 0)[t]] for t in range(5)]
    current, first, second, third, _ = letters
    assert (
        str(env.render()).splitlines()[0] == f"piece {current}, next {first} {second}, hold -"
    )
    env.step(40)
    assert (
        str(env.render()).splitlines()[0]
        == f"piece {second}, next {third} {letters[4]}, hold {current}"
    )
    env.render_mode = "rgb_array"
    before = env.render()
    assert (before.shape, before.dtype) == ((16 * 24, 16 * 15, 3), np.uint8)
    assert {tuple(color) for color in before.reshape(-1, 3)} <= {
        tuple(color) for color in PALETTE
    }
    env.step(0)
    assert not np.array_equal(before, env.render())
    most = TetrisEnv(
        pieces_known=7, hold=True, render_mode="rgb_array"
    )  # two columns of pieces
    most.reset(seed=1)
    assert most.render().shape == (16 * 24, 16 * 20, 3)


def test_a_seed_begins_its_stream_again_garbage_and_hold_included() -> None:
    env = TetrisEnv(pieces_known=2, hold=True, garbage_every=1)

    def boards() -> list[Any]:
        env.reset(seed=4, options={"stream": 2})
        return [env.step(action)[0]["board"].tolist() for action in (40, 3, 6, 9, 40)]

    assert boards() == boards()
