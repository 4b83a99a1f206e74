"""Features of every placement from the vector environment: those of single environments, on any device."""

from __future__ import annotations

import copy
import dataclasses
import platform
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from kernels.loader import CompilerMissingError, Extension, compile_check
from kernels.loader.cuda import find_nvcc, known_architectures
from tetris import Rules, feature, feature_header
from tetris.envs import PlacementFeatures, TetrisEnv, TetrisVectorEnv, native
from tetris.feature_sets import feature_names
from tetris.features import AfterState
from tetris.native import with_cuda

HERE = Path(__file__).parent
GAMES = 5
CASES = [
    ("dt", Rules(10, 20)),
    ("dt_full", Rules(7, 8, clear_on_overflow=True)),
    ("dt_columns", Rules(10, 24, pieces="bag")),
    ("dt_steps", Rules(6, 9)),
    ("step_pair_0_2_5,step_1_4,step_pair_1_3_1", Rules(4, 10)),
    ("bertsekas", Rules(4, 4)),
    ("holes,highest_hole,landing_height", Rules(5, 5, clear_on_overflow=True, pieces="SZ")),
]


@pytest.fixture(autouse=True)
def compiler() -> None:
    try:
        native.operators()
    except CompilerMissingError as error:
        pytest.skip(str(error))


def vector(rules: Rules, features: str, count: int = GAMES, **options: Any) -> TetrisVectorEnv:
    return TetrisVectorEnv(count, **rules.to_dict(), features=features, **options)


@pytest.mark.parametrize(("features", "rules"), CASES, ids=[case[0] for case in CASES])
def test_they_are_those_of_single_environments(features: str, rules: Rules) -> None:
    envs = vector(rules, features)
    singles = [PlacementFeatures(TetrisEnv(**rules.to_dict()), features) for _ in range(GAMES)]
    assert envs.single_observation_space == singles[0].observation_space
    observation, infos = envs.reset(seed=list(range(GAMES)))
    shown = [single.reset(seed=seed) for seed, single in enumerate(singles)]
    generator = np.random.default_rng(0)
    over = np.zeros(GAMES, dtype=bool)
    games = 0
    for _ in range(100):
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


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_a_truncated_game_shows_its_last_features_and_one_that_is_over_none(output: str) -> None:
    rules = Rules(6, 6)
    envs = vector(rules, "dt", 64, output=output, autoreset_mode="SameStep", max_episode_steps=8)
    # Without autoreset the last observation stays.
    ones = vector(rules, "dt", 64, output=output, autoreset_mode="Disabled", max_episode_steps=8)
    for each in (envs, ones):
        each.reset(seed=3)
    terminations = truncations = 0
    done = np.zeros(64, dtype=bool)
    generator = np.random.default_rng(1)
    for _ in range(8):
        actions = generator.integers(0, 24, 64)
        *_, terminated, truncated, infos = (np.asarray(part) for part in envs.step(actions))
        last, *_, info = ones.step(actions)
        infos = infos.item()
        for i in np.flatnonzero((terminated | truncated) & ~done):
            final = infos["final_obs"]
            final = final[i] if output == "numpy" else {name: each[i] for name, each in final.items()}
            assert np.array_equal(final["features"], last["features"][i])
            assert np.array_equal(infos["final_info"]["ends_game"][i], info["ends_game"][i])
            assert np.asarray(final["features"]).any() == (not terminated[i])
        terminations += int((terminated & ~done).sum())
        truncations += int((truncated & ~terminated & ~done).sum())
        done |= terminated | truncated
    assert terminations > 0
    assert truncations > 0


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_without_truncation_the_last_features_are_0(output: str) -> None:
    envs = vector(Rules(4, 4), "dt", 64, output=output, autoreset_mode="SameStep")
    envs.reset(seed=3)
    over = 0
    for _ in range(5):
        observation, _, terminated, _, infos = envs.step(np.zeros(64, dtype=np.int64))
        for i in np.flatnonzero(terminated):
            final = infos["final_obs"]
            features = final[i]["features"] if output == "numpy" else final["features"][i]
            assert not features.any()
            assert observation["features"][i].any()
            over += 1
    assert over > 0


def test_a_copy_goes_on_as_its_original() -> None:
    envs = vector(Rules(6, 8), "dt")
    envs.reset(seed=1)
    other = copy.deepcopy(envs)
    actions = np.arange(GAMES)
    assert np.array_equal(envs.step(actions)[0]["features"], other.step(actions)[0]["features"])


@pytest.mark.usefixtures("own_features_forgotten")
def test_a_header_of_ones_own_is_compiled_in(tmp_path: Path) -> None:
    header = tmp_path / "mine.h"
    header.write_text("TETRIS_FEATURE(FirstHeight) {\n    return board.column_height(0);\n}\n")

    @feature
    def first_height(after: AfterState) -> int:
        return after.heights[0]

    feature_header(header)
    envs = vector(Rules(6, 8), "column_height_0,first_height")
    observation, _ = envs.reset(seed=1)
    heights, own = np.moveaxis(observation["features"], -1, 0)
    assert np.array_equal(heights, own)
    assert own.any()


def test_gymnasium_makes_them_and_odd_names_are_refused() -> None:
    envs = gymnasium.make_vec("CemTetris/Tetris-10x10-v0", num_envs=2, features="dt")
    observation, infos = envs.reset(seed=1)
    assert observation["features"].shape == (2, 40, 9)
    assert infos["ends_game"].shape == (2, 40)
    assert envs.observation_space.contains(observation)
    with pytest.raises(ValueError, match=r"hole\b"):
        TetrisVectorEnv(2, features="hole")


def renamed(library: Extension, ending: str, **changes: Any) -> Any:
    """The operators of a library that is built in another way."""
    name = f"{library.name}_{ending}"
    defines = [each for each in library.defines if each[0] != "TETRIS_LIBRARY"]
    defines.append(("TETRIS_LIBRARY", name))
    dataclasses.replace(library, name=name, defines=tuple(defines), **changes).load()
    return getattr(torch.ops, name)


def compare(features: str, rules: Rules, operators: Any) -> None:
    """Play in two environments, of which the second one has other operators of the features."""
    both = [vector(rules, features, 17, output="torch", autoreset_mode="Disabled") for _ in range(2)]
    both[1]._feature_operators = operators
    for each in both:
        each.reset(seed=2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        actions = torch.randint(0, 4 * rules.width, (17,), generator=generator)
        (one, *_, infos), (other, *_, also) = (each.step(actions) for each in both)
        assert torch.equal(one["features"], other["features"])
        assert torch.equal(infos["ends_game"], also["ends_game"])
    assert both[0]._ended.any()


@pytest.mark.parametrize(("features", "rules"), CASES[:2], ids=[case[0] for case in CASES[:2]])
def test_emulated_threads_write_what_the_cpu_writes(features: str, rules: Rules) -> None:
    library = native.feature_extension(feature_names(features, rules.width))
    sources, folders = (HERE / "emulated_placements.cpp",), (*library.include_dirs, HERE)
    operators = renamed(
        library, "emulated", sources=sources, include_dirs=folders, native=False, flags=("-O1",)
    )
    compare(features, rules, operators)


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="has no SSE4")
@pytest.mark.parametrize("flags", [(), ("-msse4.1",), ("-mavx2",)], ids=["scalar", "SSE4", "AVX2"])
@pytest.mark.parametrize(("features", "rules"), CASES[:2], ids=[case[0] for case in CASES[:2]])
def test_lanes_of_any_width_write_the_same(features: str, rules: Rules, flags: tuple[str, ...]) -> None:
    library = native.feature_extension(feature_names(features, rules.width))
    ending = "_".join(["lanes", *flags]).replace("-", "").replace(".", "")
    compare(features, rules, renamed(library, ending, native=False, flags=flags))


@pytest.mark.slow
@pytest.mark.parametrize("features", ["dt", "dt_columns", "dt_step_pairs"])
def test_the_cuda_kernel_compiles_for_every_gpu(features: str) -> None:
    try:
        newest = known_architectures(find_nvcc())[-1]
    except CompilerMissingError as error:
        pytest.skip(str(error))
    library = with_cuda(native.feature_extension(feature_names(features, 10)))
    archs = ["sm_75", newest]
    compile_check(library.sources[0], archs, include_dirs=library.include_dirs, defines=library.defines)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("features", "rules"), CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_gpu_writes_what_the_cpu_writes_and_nothing_waits_for_it(
    features: str, rules: Rules, mode: AutoresetMode
) -> None:
    options = {"output": "torch", "autoreset_mode": mode, "max_episode_steps": 30}
    cpu, gpu = (vector(rules, features, 1000, device=device, **options) for device in ("cpu", "cuda"))
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
