"""Environments that begin on boards, with chosen pieces; and the replays of their games."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from tetris import published
from tetris.envs import IDS, REFERENCE_IDS, replay_of
from tetris.envs.key_press_env import DOWN, DROP, LEFT, ROTATE
from tetris.record.replay import Replay
from tetris.view.game_view import scenes

BOARD = "XX........\nXXXX.XXXXX"


@pytest.mark.parametrize("name", [*IDS, *REFERENCE_IDS])
def test_games_become_a_replay(name: str) -> None:
    env = gymnasium.make(name, height=8)
    options = {"board": BOARD, "pieces": "IT"}
    for chosen in ({}, options):
        observation, info = env.reset(seed=5, options=dict(chosen))
        env.action_space.seed(1)
        actions, lines, boards = [], 0.0, [observation["board"]]
        for _ in range(300):
            actions.append(env.action_space.sample(mask=info["action_mask"]))
            observation, reward, terminated, _, info = env.step(actions[-1])
            lines += reward
            if terminated:
                observation, info = env.reset()
            boards.append(observation["board"])
        replay = replay_of(env, actions, seed=5, controller=published("dt20"))
        assert replay.controller == published("dt20")
        assert Replay.from_dict(replay.to_dict()) == replay
        shown = list(scenes(replay.rules, replay.after_states(), replay.boards))
        seen = {board.tobytes() for board in boards}
        for scene in shown:
            cells = (scene.cells[:8] > 0).astype(np.int8)
            assert cells.tobytes() in seen
        if "Points" not in name:
            assert replay.lines == lines
        if "Bag" in name and chosen:
            assert replay.seed is None


def test_chosen_pieces_come_first_and_then_those_of_the_stream() -> None:
    env = gymnasium.make("CemTetris/Tetris-v0", pieces_known=4)
    stream = env.reset(seed=7)[0]
    observation, _ = env.reset(seed=7, options={"board": BOARD, "pieces": "IT"})
    assert [int(observation["piece"]), *observation["next_pieces"]] == [
        0,
        2,
        *stream["next_pieces"][1:],
    ]
    assert observation["board"][:2].tolist() == [
        [1, 1, 1, 1, 0, 1, 1, 1, 1, 1],
        [1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    for options, message in (
        ({"board": "X"}, "rows of 10 cells"),
        ({"pieces": "Q"}, "a letter of IOTZSJL, got 'Q'"),
        ({"stack": BOARD}, "among stream, board, pieces; got 'stack'"),
    ):
        with pytest.raises(ValueError, match=message):
            env.reset(seed=7, options=options)


def test_an_environment_that_plays_by_itself_has_no_replay() -> None:
    wrappers = gymnasium.wrappers
    env = gymnasium.make("CemTetris/Tetris-v0")
    sticky = wrappers.StickyAction(env, repeat_action_probability=0.5)
    envs = gymnasium.make_vec("CemTetris/Tetris-v0", num_envs=2)
    changed = wrappers.vector.TransformAction(envs, lambda actions: actions + 1)
    for wrapped in (
        wrappers.RecordEpisodeStatistics(wrappers.Autoreset(env)),
        wrappers.RecordEpisodeStatistics(sticky),
        wrappers.vector.RecordEpisodeStatistics(changed),
    ):
        with pytest.raises(ValueError, match="expected no wrapper that"):
            replay_of(wrapped, [0], seed=1)


def test_a_piece_that_slides_under_the_stack_keeps_its_row() -> None:
    env = gymnasium.make("CemTetris/Tetris-KeyPress-v0", height=6, gravity=100)
    options = {"board": "XXXX......\nXX........", "pieces": "I"}
    keys = [ROTATE, *[DOWN] * 6, LEFT, LEFT, DROP]
    replay = replay_of(env, keys, seed=1, options=options)
    assert (replay.boards, replay.landings) == ({0: (0b11, 0b1111)}, {0: 0})
    (after,) = Replay.from_dict(replay.to_dict()).after_states()
    assert after.rows == (0b111111, 0b1111)


@pytest.mark.parametrize("name", ["Hold", "KeyPress", "Garbage"])
def test_later_resets_are_replayed(name: str) -> None:
    env: Any = gymnasium.make(f"CemTetris/Tetris-{name}-v0", max_episode_steps=150)
    board = np.array([[1, 1, 1, 1, 0, 1, 1, 1, 1, 1]])
    _, info = env.reset(seed=1)
    env.reset(options={"board": board, "pieces": "TI"})
    board[:] = 0  # The replay has the board that the environment got.
    actions: list[int] = []
    landings = [None]
    for time in range(400):
        actions.append(env.action_space.sample(mask=info["action_mask"]))
        _, _, terminated, truncated, info = env.step(actions[-1])
        if env.unwrapped.landing is not landings[-1]:
            landings.append(env.unwrapped.landing)
        if terminated or truncated or time == 7:
            info = env.reset()[1]
        if time == 30:
            info = env.reset(options={"pieces": "SZ"})[1]
            info = env.reset(options={"board": BOARD})[1]
    replay = replay_of(env, actions, seed=1)
    assert list(replay.after_states()) == landings[1:]


@pytest.mark.usefixtures("step_engine")
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_a_game_of_many_becomes_a_replay(mode: str) -> None:
    envs: Any = gymnasium.make_vec(
        "CemTetris/Tetris-v0", num_envs=3, height=8, autoreset_mode=mode, max_episode_steps=20
    )
    boards = [BOARD, "X.........", ".........X"]
    observation, _ = envs.reset(seed=4, options={"board": boards})
    assert observation["board"][1, 0].tolist() == [1, *[0] * 9]
    rng, lines, ended, actions = np.random.default_rng(0), np.zeros(3), np.zeros(3), []
    for _ in range(100):
        actions.append(rng.integers(0, 40, 3))
        _, rewards, terminations, *_ = envs.step(actions[-1])
        lines += rewards
        ended += terminations
    for game in range(3):
        wrapped = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
        replay = replay_of(wrapped, actions, seed=4, game=game)
        games = ended[game] > 0 if mode == "Disabled" else ended[game]
        assert (replay.lines, replay.games) == (lines[game], games)
        assert (replay.seed, replay.stream) == (4, game)
    envs.reset(options={"reset_mask": np.array([False, True, False])})
    assert replay_of(envs, [*actions, actions[0]], seed=4, game=2)
    with pytest.raises(ValueError, match=r"at most 100 actions for game 1, .*, got 101"):
        replay_of(envs, [*actions, actions[0]], seed=4, game=1)
    envs.reset(seed=[4, None, 4])
    with pytest.raises(ValueError, match="at most 0 actions for game 1"):
        replay_of(envs, actions, seed=[4, 4, 4], game=1)
    with pytest.raises(ValueError, match="pieces with vectorization_mode"):
        envs.reset(options={"pieces": "T"})
