"""The vector environment: its games and features are those of single environments, in every
mode."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from engine_games import every_feature
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tetris import Rules
from tetris.envs import IDS, PlacementFeatures, TetrisEnv, TetrisVectorEnv
from tetris.game.piece_stream import PieceStream

pytestmark = pytest.mark.usefixtures("step_engine")
MODES = tuple(AutoresetMode)
FEATURES = every_feature(4)
"""One list, whatever the width, so that its operator is compiled once."""


def plain(value: Any) -> Any:
    """Arrays and tensors as lists, for comparison."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)) or (
        isinstance(value, np.ndarray) and value.dtype == object
    ):
        return [plain(each) for each in value]
    return (
        value.tolist() if isinstance(value, (np.ndarray, np.generic, torch.Tensor)) else value
    )


def play_beside(fast: Any, slow: Any, steps: int, seeds: list[int]) -> tuple[int, set[float]]:
    """Play random actions in both and compare all they return; how many games ended, and the
    rewards seen."""
    rng = np.random.default_rng(0)
    assert plain(fast.reset(seed=seeds)) == plain(slow.reset(seed=seeds))
    ended, rewards = 0, set()
    for _ in range(steps):
        actions = rng.integers(0, fast.single_action_space.n, fast.num_envs)
        results = [list(copy.deepcopy(envs.step(actions))) for envs in (fast, slow)]
        done = results[0][2] | results[0][3]
        ended += int(done.sum())
        rewards.update(results[0][1].tolist())
        assert results[0][0] in fast.observation_space
        assert plain(results[0]) == plain(results[1])
        if fast.metadata["autoreset_mode"] is AutoresetMode.DISABLED and done.any():
            options = [{"reset_mask": done.copy()} for _ in range(2)]
            again = [
                envs.reset(options=option)
                for envs, option in zip((fast, slow), options, strict=True)
            ]
            assert plain(again[0][0]) == plain(again[1][0])
            assert plain(again[0][1]["action_mask"][done]) == plain(
                again[1][1]["action_mask"][done]
            )
    return ended, rewards


LINES, POINTS = {0.0, 1.0, 2.0, 3.0}, {0.0, 100.0, 300.0, 500.0, 800.0}


@pytest.mark.parametrize(
    ("rules", "mode", "limit", "options", "rewards"),
    [
        (Rules(10, 20), MODES[2], 7, {}, {0.0}),
        (Rules(7, 8, clear_on_overflow=True), MODES[1], None, {"features": FEATURES}, {0.0}),
        (Rules(4, 4), MODES[2], None, {"reward": "pieces", "features": FEATURES}, {0.0, 1.0}),
        (
            Rules(6, 6),
            MODES[0],
            None,
            {"reward": "survival", "features": FEATURES},
            {-1.0, 0.0},
        ),
        (
            Rules(10, 24, pieces="bag"),
            MODES[1],
            7,
            {"pieces_known": 7, "features": FEATURES},
            {0.0},
        ),
        (
            Rules(4, 8, clear_on_overflow=True, pieces="IJ"),
            MODES[0],
            9,
            {"reward": "points"},
            POINTS,
        ),
        (Rules(4, 8, clear_on_overflow=True, pieces="IJ"), MODES[1], 9, {}, LINES),
    ],
    ids=lambda value: str(value) if isinstance(value, Rules) else None,
)
def test_it_plays_as_single_environments_do(
    rules: Rules,
    mode: AutoresetMode,
    limit: int | None,
    options: dict[str, Any],
    rewards: set[float],
) -> None:
    count = 40 if len(rewards) > 2 else 5  # four lines at once are rare
    make: Any = partial(
        gymnasium.make_vec, "CemTetris/Tetris-v0", count, max_episode_steps=limit
    )
    fast = make(autoreset_mode=mode, **rules.to_dict(), **options)
    assert isinstance(fast, TetrisVectorEnv)
    single: Any = {name: options[name] for name in options if name != "features"}
    wrappers = [lambda env: PlacementFeatures(env, FEATURES)] if "features" in options else None
    vector_kwargs = {"autoreset_mode": mode}
    slow = make(
        **{"vectorization_mode": "sync", "vector_kwargs": vector_kwargs, "wrappers": wrappers},
        **{**rules.to_dict(), **single},
    )
    assert isinstance(slow, SyncVectorEnv)
    assert fast.observation_space == slow.observation_space
    assert fast.action_space == slow.action_space
    ended, seen = play_beside(fast, slow, 90, [(1 << 63) - 1, *range(count - 1)])
    assert ended > 5
    assert seen >= rewards


def test_the_number_of_threads_does_not_matter() -> None:
    count, seen, seed = 2500, [], (1 << 64) - 5  # a thread has 1024 environments at least
    for threads in (1, 3):
        torch.set_num_threads(threads)
        envs = TetrisVectorEnv(count, 4, 7, autoreset_mode="SameStep", first_stream=9)
        rng = np.random.default_rng(1)
        envs.reset(seed=seed)
        seen.append([plain(envs.step(rng.integers(0, 16, count))[:4]) for _ in range(8)])
    assert seen[0] == seen[1]
    pieces = [PieceStream(Rules(4, 7), seed, 9 + number)[8] for number in range(count)]
    assert seen[0][-1][0]["piece"] == pieces


def test_torch_and_numpy_say_the_same() -> None:
    both = [
        TetrisVectorEnv(6, 6, 6, output=each, autoreset_mode="SameStep")
        for each in ("numpy", "torch")
    ]
    for envs in both:
        envs.reset(seed=1)
    generator = torch.Generator().manual_seed(0)
    ended = 0
    for _ in range(40):
        actions = torch.randint(0, 24, (6,), generator=generator)
        one, other = both[0].step(actions.numpy()), both[1].step(actions)
        assert all(isinstance(each, torch.Tensor) for each in (*other[0].values(), *other[1:4]))
        assert plain(one[:4]) == plain(other[:4])
        assert plain(one[4]["action_mask"]) == plain(other[4]["action_mask"])
        done = one[2]
        ended += int(done.sum())
        assert other[4]["_final_obs"].tolist() == done.tolist()
        assert other[4]["final_obs"]["piece"].data_ptr() != other[0]["piece"].data_ptr()
        assert ("final_obs" in one[4]) == bool(done.any())
        for i in np.flatnonzero(done):
            last = {name: each[i] for name, each in other[4]["final_obs"].items()}
            assert plain(one[4]["final_obs"][i]) == plain(last)
            masks = [each[4]["final_info"]["action_mask"][i] for each in (one, other)]
            assert plain(masks[0]) == plain(masks[1])
    assert ended > 3


def test_without_autoreset_an_ended_game_stays_as_it_is() -> None:
    envs = TetrisVectorEnv(2, 4, 4, autoreset_mode="Disabled", max_episode_steps=3)
    envs.reset(seed=[0, 1])
    for _ in range(3):
        observation, _, terminations, truncations, _ = envs.step([0, 8])
    assert (terminations | truncations).all()
    again = envs.step([5, 5])
    assert plain(again[:4]) == plain((observation, np.zeros(2), terminations, truncations))
    first = envs.reset(options={"reset_mask": np.array([True, False])})[0]
    assert not first["board"][0].any()
    assert plain(first["board"][1]) == plain(observation["board"][1])
    assert envs.step([0, 0])[0]["board"][0].sum() == 4


def test_a_seed_of_some_games_leaves_the_others_alone() -> None:
    envs = TetrisVectorEnv(3, pieces="bag")
    envs.reset(seed=[5, 6, None])
    envs.step([0, 0, 0])
    observation, _ = envs.reset(
        seed=[None, 9, 10], options={"reset_mask": np.array([True, True, False])}
    )
    rules = Rules(pieces="bag")
    expected = [PieceStream(rules, 5, 0)[1], PieceStream(rules, 9, 0)[0]]
    assert observation["piece"][:2].tolist() == expected
    assert plain(envs.reset(seed=3)) == plain(envs.reset(seed=np.uint64(3)))


def test_without_a_seed_games_differ() -> None:
    pieces = [TetrisVectorEnv(30).reset()[0]["piece"].tolist() for _ in range(2)]
    assert pieces[0] != pieces[1]  # wrong once in 7^30


def test_returned_arrays_are_the_caller_s() -> None:
    envs = TetrisVectorEnv(3)
    observation, infos = envs.reset(seed=0)
    observation["board"][:] = 1
    observation["piece"][:] = 0
    infos["action_mask"][:] = 0
    other = TetrisVectorEnv(3)
    other.reset(seed=0)
    assert plain(envs.step([3, 4, 5])) == plain(other.step([3, 4, 5]))


def test_every_id_has_a_vector_environment() -> None:
    for identifier in IDS:
        envs = gymnasium.make_vec(identifier, num_envs=2)
        inner = gymnasium.make(identifier).unwrapped
        assert isinstance(envs, TetrisVectorEnv)
        assert isinstance(inner, TetrisEnv)
        assert (envs.rules, envs.pieces_known) == (inner.rules, inner.pieces_known)
        assert envs.spec is not None
        assert envs.metadata["render_modes"] == ["ansi", "rgb_array"]
        envs.close()


def test_what_an_operator_gets_is_checked() -> None:
    envs = TetrisVectorEnv(2, output="torch")
    envs.reset(seed=0)
    envs._time = envs._time.to(torch.int32)
    with pytest.raises(RuntimeError, match="expected tensors of the documented type and shape"):
        envs.step([0, 0])


@pytest.mark.parametrize(("mode", "pieces_known"), [("ansi", 3), ("rgb_array", 1)])
def test_every_game_is_drawn(mode: str, pieces_known: int) -> None:
    envs = TetrisVectorEnv(2, render_mode=mode, pieces_known=pieces_known)
    single = TetrisEnv(render_mode=mode, pieces_known=pieces_known)
    envs.reset(seed=[8, 9])
    single.reset(seed=9)
    envs.step([3, 4])
    single.step(4)
    pictures = envs.render()
    assert pictures is not None
    assert len(pictures) == 2
    assert np.array_equal(pictures[1], single.render())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_envs": 0}, "expected num_envs from 1 to 2147483648, got 0"),
        ({"hold": True, "pieces_known": 2}, 'with vectorization_mode="sync" alone'),
        ({"output": "jax"}, "expected an output on cpu among numpy, torch; got 'jax'"),
    ],
)
def test_bad_arguments_raise(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TetrisVectorEnv(**arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_raises() -> None:
    with pytest.raises(ValueError, match="expected a GPU for device cuda"):
        TetrisVectorEnv(1, device="cuda")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"actions": [0]}, ValueError, r"expected actions of shape \(2,\), got \(1,\)"),
        (
            {"actions": [0.0, 1.0]},
            TypeError,
            "expected actions to be integers, got torch.float64",
        ),
        ({"actions": [0, 40]}, ValueError, "expected actions from 0 to 39, got 40"),
        ({"actions": [-1, 0]}, ValueError, "expected actions from 0 to 39, got -1"),
        ({"seed": [1]}, ValueError, "expected 2 seeds, got 1"),
        ({"options": {"stream": 3}}, ValueError, "option of reset.*reset_mask.*got 'stream'"),
        (
            {"options": {"reset_mask": np.zeros(2)}},
            ValueError,
            "expected reset_mask to hold bools",
        ),
    ],
)
def test_bad_calls_raise(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    envs = TetrisVectorEnv(2)
    envs.reset(seed=0)
    with pytest.raises(error, match=message):
        envs.step(**arguments) if "actions" in arguments else envs.reset(**arguments)


def test_games_have_to_begin_first() -> None:
    envs = TetrisVectorEnv(2)
    with pytest.raises(gymnasium.error.ResetNeeded, match="got step"):
        envs.step([0, 0])
    with pytest.raises(gymnasium.error.ResetNeeded, match="got a reset_mask"):
        envs.reset(seed=1, options={"reset_mask": np.ones(2, dtype=bool)})
