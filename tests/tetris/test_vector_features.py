"""Features of every placement from the vector environment: those of single environments, on any device."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from engine_games import emulated, every_feature
from gymnasium.vector import AutoresetMode

from kernels.loader import CompilerMissingError, compile_check
from tetris import Rules
from tetris.envs import PlacementFeatures, TetrisEnv, TetrisVectorEnv, native
from tetris.game.feature_sets import feature_names
from tetris.play.engines import with_cuda

pytestmark = pytest.mark.usefixtures("step_engine")
GAMES = 5
FEATURES = every_feature(4)
"""One list, whatever the width, so that its operator is compiled once."""

CASES = [
    (Rules(10, 20), AutoresetMode.NEXT_STEP),
    (Rules(7, 8, clear_on_overflow=True), AutoresetMode.SAME_STEP),
    (Rules(10, 24, pieces="bag"), AutoresetMode.DISABLED),
    (Rules(4, 4), AutoresetMode.SAME_STEP),
]


def vector(rules: Rules, count: int = GAMES, **options: Any) -> TetrisVectorEnv:
    return TetrisVectorEnv(count, **rules.to_dict(), features=FEATURES, **options)


@pytest.mark.parametrize("rules", [rules for rules, _ in CASES], ids=str)
def test_they_are_those_of_single_environments(rules: Rules) -> None:
    envs = vector(rules)
    singles = [PlacementFeatures(TetrisEnv(**rules.to_dict()), FEATURES) for _ in range(GAMES)]
    assert envs.single_observation_space == singles[0].observation_space
    observation, infos = envs.reset(seed=list(range(GAMES)))
    shown = [single.reset(seed=seed) for seed, single in enumerate(singles)]
    generator = np.random.default_rng(0)
    over = np.zeros(GAMES, dtype=bool)
    games = 0
    for _ in range(40):
        for i, (expected, info) in enumerate(shown):
            assert np.array_equal(observation["features"][i], expected["features"])
            assert np.array_equal(infos["ends_game"][i], info["ends_game"])
        actions = generator.integers(0, 4 * rules.width, GAMES)
        observation, _, terminated, _, infos = envs.step(actions)
        for i, single in enumerate(singles):
            if over[i]:
                shown[i] = single.reset()
            else:
                expected, _, _, _, info = single.step(actions[i])
                shown[i] = expected, info
        over = terminated
        games += int(over.sum())
    assert games > 0
    assert observation["features"].dtype == np.float32
    assert infos["_ends_game"].all()


def test_a_truncated_game_shows_its_last_features_and_one_that_is_over_none() -> None:
    envs, ones = (  # without autoreset the last observation stays
        vector(Rules(6, 6), 64, autoreset_mode=mode, max_episode_steps=8) for mode in ("SameStep", "Disabled")
    )
    for each in (envs, ones):
        each.reset(seed=3)
    terminations = truncations = 0
    done = np.zeros(64, dtype=bool)
    generator = np.random.default_rng(1)
    for _ in range(8):
        actions = generator.integers(0, 24, 64)
        _, _, terminated, truncated, infos = envs.step(actions)
        last, *_, info = ones.step(actions)
        for i in np.flatnonzero((terminated | truncated) & ~done):
            features = infos["final_obs"][i]["features"]
            assert np.array_equal(features, last["features"][i])
            assert np.array_equal(infos["final_info"]["ends_game"][i], info["ends_game"][i])
            assert features.any() == (not terminated[i])
        terminations += int((terminated & ~done).sum())
        truncations += int((truncated & ~terminated & ~done).sum())
        done |= terminated | truncated
    assert terminations > 0
    assert truncations > 0


def test_without_truncation_the_last_features_are_0() -> None:
    envs = vector(Rules(4, 4), 64, autoreset_mode="SameStep")
    envs.reset(seed=3)
    over = 0
    for _ in range(5):
        observation, _, terminated, _, infos = envs.step(np.zeros(64, dtype=np.int64))
        for i in np.flatnonzero(terminated):
            assert not infos["final_obs"][i]["features"].any()
            assert observation["features"][i].any()
            over += 1
    assert over > 0


def test_gymnasium_makes_them_and_odd_names_are_refused() -> None:
    envs = gymnasium.make_vec("CemTetris/Tetris-10x10-v0", num_envs=2, features=FEATURES)
    observation, infos = envs.reset(seed=1)
    assert observation["features"].shape == (2, 40, len(feature_names(FEATURES)))
    assert infos["ends_game"].shape == (2, 40)
    assert envs.observation_space.contains(observation)
    with pytest.raises(ValueError, match=r"hole\b"):
        TetrisVectorEnv(2, features="hole")


@pytest.mark.parametrize("rules", [rules for rules, _ in CASES[:2]], ids=str)
def test_emulated_threads_write_what_the_cpu_writes(rules: Rules) -> None:
    operators = emulated(native.feature_extension(feature_names(FEATURES)), "placements")
    other = type("Emulated", (TetrisVectorEnv,), {"_feature_operators": operators})
    options: dict[str, Any] = {**rules.to_dict(), "features": FEATURES, "output": "torch"}
    both = [kind(17, autoreset_mode="Disabled", **options) for kind in (TetrisVectorEnv, other)]
    for each in both:
        each.reset(seed=2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        actions = torch.randint(0, 4 * rules.width, (17,), generator=generator)
        (one, *_, infos), (two, *_, also) = (each.step(actions) for each in both)
        assert torch.equal(one["features"], two["features"])
        assert torch.equal(infos["ends_game"], also["ends_game"])
    assert both[0]._ended.any()


@pytest.mark.slow
def test_the_cuda_kernel_compiles_for_old_gpus() -> None:
    library = with_cuda(native.feature_extension(feature_names(FEATURES)))
    try:
        compile_check(library.sources[0], "sm_75", library.include_dirs, library.defines)
    except CompilerMissingError as error:
        pytest.skip(str(error))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("rules", "mode"), CASES, ids=str)
def test_a_gpu_writes_what_the_cpu_writes_and_nothing_waits_for_it(rules: Rules, mode: AutoresetMode) -> None:
    options = {"output": "torch", "autoreset_mode": mode, "max_episode_steps": 30}
    cpu, gpu = (vector(rules, 1000, device=device, **options) for device in ("cpu", "cuda"))
    cpu.reset(seed=1)
    gpu.reset(seed=1)
    actions = torch.randint(0, 4 * rules.width, (40, 1000), generator=torch.Generator().manual_seed(0))
    there = actions.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        results = [gpu.step(each) for each in there]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for each, (observation, *_, infos) in zip(actions, results, strict=True):
        expected, *_, expected_infos = cpu.step(each)
        assert torch.equal(expected["features"], observation["features"].cpu())
        assert torch.equal(expected_infos["ends_game"], infos["ends_game"].cpu())
        if mode is AutoresetMode.SAME_STEP:
            final, on_gpu = (one["final_obs"]["features"].cpu() for one in (expected_infos, infos))
            assert torch.equal(final, on_gpu)
