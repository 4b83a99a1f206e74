"""The vector environment's CUDA kernels: they compile, and emulated threads play what the CPU
plays."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_games import emulated, every_feature
from gymnasium.vector import AutoresetMode

from kernels.loader import CompilerMissingError, compile_check
from kernels.loader.cuda import find_nvcc, known_architectures
from tetris import Rules
from tetris.envs import TetrisVectorEnv, native
from tetris.game.feature_sets import feature_names
from tetris.play.engines import with_cuda

THREADS = 128
"""Of a block: STEP_THREADS in step.cuh."""


FEATURES = every_feature(4)
"""One list, whatever the width, so that its operator is compiled once."""
LIBRARIES = {
    "step": native.extension,
    "placements": lambda: native.feature_extension(feature_names(FEATURES)),
}


@pytest.fixture(scope="module")
def emulated_env() -> type[TetrisVectorEnv]:
    """The environment by the operators of emulated_step.cpp and emulated_placements.cpp."""
    step, placements = (emulated(library(), name) for name, library in LIBRARIES.items())
    chosen = {"_operators": lambda _, names=(): placements if names else step}
    return type("Emulated", (TetrisVectorEnv,), chosen)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other.cpu())
    pairs = (
        [(one[key], other[key]) for key in one]
        if isinstance(one, dict)
        else zip(one, other, strict=True)
    )
    return all(same(*pair) for pair in pairs)


def make_both(
    emulated_env: type[TetrisVectorEnv], count: int, rules: Rules, **options: Any
) -> list[TetrisVectorEnv]:
    both = TetrisVectorEnv, emulated_env
    return [kind(count, **rules.to_dict(), output="torch", **options) for kind in both]


@pytest.mark.parametrize(
    ("rules", "count", "mode", "reward", "features"),
    [
        (Rules(10, 20), THREADS + 1, AutoresetMode.NEXT_STEP, "survival", None),
        (
            Rules(5, 5, clear_on_overflow=True),
            2 * THREADS + 3,
            AutoresetMode.SAME_STEP,
            "pieces",
            None,
        ),
        (Rules(7, 7, pieces="bag"), THREADS, AutoresetMode.DISABLED, "lines", None),
        (Rules(4, 8, pieces="IJ"), 200, AutoresetMode.SAME_STEP, "points", None),
        (Rules(7, 8), 9, AutoresetMode.SAME_STEP, "survival", FEATURES),
    ],
    ids=lambda value: "features" if value == FEATURES else None,
)
def test_it_plays_what_the_cpu_plays(
    emulated_env: Any,
    rules: Rules,
    count: int,
    mode: AutoresetMode,
    reward: str,
    features: str | None,
) -> None:
    options: dict[str, Any] = {
        "max_episode_steps": 25,
        "first_stream": 1 << 40,
        "pieces_known": 3,
    }
    options |= {"reward": reward, "features": features}
    both = make_both(emulated_env, count, rules, autoreset_mode=mode, **options)
    assert same(*(envs.reset(seed=(1 << 64) - 3) for envs in both))
    generator = torch.Generator().manual_seed(0)
    ended, rewards = 0, set()
    for _ in range(40):
        actions = torch.randint(0, 4 * rules.width, (count,), generator=generator)
        one, other = (envs.step(actions) for envs in both)
        assert same(one, other)
        done = one[2] | one[3]
        ended += int(done.sum())
        rewards.update(one[1].tolist())
        if mode is AutoresetMode.DISABLED and done.any():
            assert same(*(envs.reset(options={"reset_mask": done}) for envs in both))
    assert ended > 0
    assert len(rewards) == {"lines": 2, "points": 5, "pieces": 2, "survival": 2}[reward]


def test_an_action_outside_the_space_is_the_nearest_in_it(
    emulated_env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = make_both(emulated_env, 3, Rules(6, 8))
    for envs in both:
        envs.reset(seed=0)
    # A GPU does not look at them before.
    monkeypatch.setattr(TetrisVectorEnv, "_checked_numbers", lambda _, actions: actions)
    least, most = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
    expected = both[0].step(torch.tensor([0, 23, 23]))
    assert same(expected, both[1].step(torch.tensor([least, most, 24])))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "oldest"), [("step", False), ("placements", True)])
def test_the_cuda_kernels_compile_for_old_and_new_gpus(name: str, oldest: bool) -> None:
    library = with_cuda(LIBRARIES[name]())
    try:
        arch = "sm_75" if oldest else known_architectures(find_nvcc())[-1]
        compile_check(library.sources[0], [arch], library.include_dirs, library.defines)
    except CompilerMissingError as error:
        pytest.skip(str(error))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    ("rules", "mode", "options"),
    [
        (Rules(), AutoresetMode.NEXT_STEP, {"reward": "lines"}),
        (Rules(), AutoresetMode.SAME_STEP, {"reward": "survival"}),
        (
            Rules(10, 24, pieces="bag"),
            AutoresetMode.DISABLED,
            {"reward": "pieces", "features": FEATURES},
        ),
        (Rules(7, 8), AutoresetMode.SAME_STEP, {"max_episode_steps": 30, "features": FEATURES}),
        (Rules(4, 4), AutoresetMode.SAME_STEP, {"reward": "points", "features": FEATURES}),
    ],
)
def test_a_gpu_plays_what_the_cpu_plays_and_nothing_waits_for_it(
    rules: Rules, mode: AutoresetMode, options: dict[str, Any]
) -> None:
    count = 5_000
    options = {**rules.to_dict(), "output": "torch", "autoreset_mode": mode, **options}
    cpu, gpu = (TetrisVectorEnv(count, device=device, **options) for device in ("cpu", "cuda"))
    cpu.reset(seed=1)
    gpu.reset(seed=1)
    actions = torch.randint(
        0, 4 * rules.width, (60, count), generator=torch.Generator().manual_seed(0)
    )
    there = actions.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        results = [gpu.step(each) for each in there]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for each, found in zip(actions, results, strict=True):
        assert found[0]["board"].is_cuda
        assert same(cpu.step(each), found)
