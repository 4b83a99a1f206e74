"""Tetris by key presses: what each key does, gravity, and the same rules as by placements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tetris.envs import KeyPressTetrisEnv, PlacementFeatures, TetrisEnv
from tetris.envs.key_press_env import DOWN, DROP, HOLD, LEFT, NOTHING, RIGHT, ROTATE
from tetris.envs.tetris_env import placement
from tetris.game.piece_stream import PieceStream


def begun(**options: Any) -> KeyPressTetrisEnv:
    env = KeyPressTetrisEnv(**options)
    env.reset(seed=1)
    return env


def test_the_same_placements_make_the_same_game() -> None:
    rules: dict[str, Any] = {"width": 7, "height": 9, "garbage_every": 6}
    keys, placements = begun(**rules, gravity=1000), TetrisEnv(**rules)
    observation, info = placements.reset(seed=1)
    placements.action_space.seed(2)
    games = 0
    for _ in range(150):
        action = int(placements.action_space.sample(mask=info["action_mask"]))
        shape, column = placement(action, placements.piece, 7)
        while keys._shape != shape:
            assert keys.step(ROTATE)[1] == 0.0
        while keys._column != column:
            assert keys.step(LEFT if keys._column > column else RIGHT)[1] == 0.0
        keys._since_gravity = 0  # gravity never acts
        seen, *result = keys.step(DROP)[:4]
        observation, *expected, info = placements.step(action)
        assert result == expected
        assert all(np.array_equal(seen[key], observation[key]) for key in observation)
        if expected[1]:
            games += 1
            keys.reset()
            _, info = placements.reset()
    assert games > 3


def test_gravity_acts_after_every_nth_step_and_brings_the_piece_to_rest() -> None:
    env = begun(height=4, pieces="O", gravity=3, reward="pieces")
    lowest = []
    for step in range(15):
        observation, reward = env.step(NOTHING)[:2]
        assert (observation["since_gravity"], reward) == ((step + 1) % 3, step == 14)
        lowest.append(int(np.flatnonzero(observation["falling"].any(axis=1))[0]))
    assert lowest == [4, 4, 3, 3, 3, 2, 2, 2, 1, 1, 1, 0, 0, 0, 4]
    assert env.rows == (0b110000, 0b110000)
    assert env.step(NOTHING)[0]["since_gravity"] == 1
    assert env.reset()[0]["since_gravity"] == 0


def test_gravity_does_not_pull_a_piece_that_has_just_appeared() -> None:
    observation = begun(gravity=1).step(DROP)[0]
    assert int(np.flatnonzero(observation["falling"].any(axis=1))[0]) == 20


def test_a_piece_slides_under_an_overhang() -> None:
    env = begun(width=4, height=6, pieces="O", gravity=1000)
    env.rows = (0, 0, 0b0011)
    env.step(RIGHT)
    for _ in range(6):
        env.step(DOWN)
    env.step(LEFT)
    env.step(LEFT)
    env.step(DOWN)  # on the floor: comes to rest
    assert env.rows == (0b0011, 0b0011, 0b0011)


def test_the_mask_says_which_keys_change_something() -> None:
    env = begun(pieces_known=2, hold=True)
    env.action_space.seed(0)
    unchanged = set()
    for _ in range(3000):
        mask = env.action_masks()
        for key in (LEFT, RIGHT, ROTATE):
            assert mask[key] == (env._piece_after_key(key) is not None)
        before = env._shape, env._column, env.held
        key = int(env.action_space.sample())
        env._since_gravity = 0
        terminated = env.step(key)[2]
        if not mask[key]:
            unchanged.add(key)
            assert before == (env._shape, env._column, env.held)
        elif key in (LEFT, RIGHT):
            assert before != (env._shape, env._column, env.held)
        if terminated:
            env.reset()
    assert unchanged == {LEFT, RIGHT, ROTATE, HOLD}


def test_hold_swaps_once_a_piece() -> None:
    env = begun(pieces="bag", pieces_known=2, hold=True)
    pieces = PieceStream(env.rules, 1, 0)
    observation, *_, info = env.step(HOLD)
    assert (env.held, env.piece, observation["may_hold"]) == (pieces[0], pieces[1], 0)
    assert info["action_mask"][HOLD] == 0
    env.step(HOLD)
    assert (env.held, env.piece) == (pieces[0], pieces[1])
    assert env.step(DROP)[0]["may_hold"] == 1
    env.step(HOLD)
    assert (env.held, env.piece) == (pieces[2], pieces[0])


def test_points_count_rows_dropped() -> None:
    env = begun(pieces="O", reward="points", gravity=1000)
    assert env.step(DOWN)[1] == 1.0
    assert env.step(DROP)[1] == 2.0 * 19
    assert env.step(NOTHING)[1] == 0.0


def test_it_is_drawn_where_it_falls() -> None:
    env = begun(width=6, height=6, pieces="O", render_mode="ansi")
    for _ in range(3):
        env.step(DOWN)
    assert str(env.render()).splitlines()[1:] == [
        "| . . . . . .|",
        "| . .#### . .|",
        "| . .#### . .|",
        *["| . . . . . .|"] * 3,
        "+------------+",
    ]


def test_bad_calls_raise() -> None:
    with pytest.raises(ValueError, match="expected gravity from 1"):
        KeyPressTetrisEnv(gravity=0)
    with pytest.raises(ValueError, match=r"expected an action of Discrete\(6\), got 6"):
        begun().step(6)
    with pytest.raises(TypeError, match="expected a TetrisEnv, got"):
        PlacementFeatures(KeyPressTetrisEnv())


def test_the_keys_of_gymnasium_s_play_are_those_of_pygame() -> None:
    pygame = pytest.importorskip("pygame")
    names = {"LEFT": LEFT, "RIGHT": RIGHT, "UP": ROTATE, "DOWN": DOWN, "SPACE": DROP, "c": HOLD}
    names |= {"a": LEFT, "d": RIGHT, "w": ROTATE, "s": DOWN}
    expected = {(getattr(pygame, f"K_{name}"),): action for name, action in names.items()}
    assert begun(pieces_known=2, hold=True).get_keys_to_action() == expected
