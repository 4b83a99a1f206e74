"""The vector environment's CUDA kernels: they compile, and emulated threads play what the CPU plays."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_games import emulated
from gymnasium.vector import AutoresetMode

from kernels.loader import CompilerMissingError, compile_check
from kernels.loader.cuda import find_nvcc, known_architectures
from tetris import Rules
from tetris.envs import TetrisVectorEnv, native
from tetris.envs.tetris_env import REWARDS
from tetris.play.engines import with_cuda

THREADS = 128
"""Of a block: STEP_THREADS in step.cuh."""


@pytest.fixture(scope="module")
def step_operators() -> Any:
    """The operators of emulated_step.cpp."""
    return emulated(native.extension(), "step")


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    pairs = [(one[key], other[key]) for key in one] if isinstance(one, dict) else zip(one, other, strict=True)
    return all(same(*pair) for pair in pairs)


def make_both(step_operators: Any, count: int, rules: Rules, **options: Any) -> list[TetrisVectorEnv]:
    other = type("Emulated", (TetrisVectorEnv,), {"_operators": step_operators})
    return [kind(count, **rules.to_dict(), output="torch", **options) for kind in (TetrisVectorEnv, other)]


@pytest.mark.parametrize(
    ("rules", "count", "mode", "reward"),
    [
        (Rules(10, 20), THREADS + 1, AutoresetMode.NEXT_STEP, "survival"),
        (Rules(5, 5, clear_on_overflow=True), 2 * THREADS + 3, AutoresetMode.SAME_STEP, "pieces"),
        (Rules(7, 7, pieces="bag"), THREADS, AutoresetMode.DISABLED, "lines"),
        (Rules(4, 8, pieces="IJ"), 200, AutoresetMode.SAME_STEP, "points"),
    ],
)
def test_it_plays_what_the_cpu_plays(
    step_operators: Any, rules: Rules, count: int, mode: AutoresetMode, reward: str
) -> None:
    options: dict[str, Any] = {"max_episode_steps": 25, "first_stream": 1 << 40, "pieces_known": 3}
    both = make_both(step_operators, count, rules, autoreset_mode=mode, reward=reward, **options)
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
    step_operators: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = make_both(step_operators, 3, Rules(6, 8))
    for envs in both:
        envs.reset(seed=0)
    # A GPU does not look at them before.
    monkeypatch.setattr(TetrisVectorEnv, "_numbers_of", lambda _, actions: actions)
    least, most = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
    expected = both[0].step(torch.tensor([0, 23, 23]))
    assert same(expected, both[1].step(torch.tensor([least, most, 24])))


@pytest.mark.slow
def test_the_cuda_kernels_compile_for_every_gpu() -> None:
    try:
        newest = known_architectures(find_nvcc())[-1]
    except CompilerMissingError as error:
        pytest.skip(str(error))
    library = with_cuda(native.extension())
    archs = [newest]
    compile_check(library.sources[0], archs, include_dirs=library.include_dirs, defines=library.defines)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    ("reward", "mode"), [*zip(REWARDS, (*AutoresetMode, AutoresetMode.SAME_STEP), strict=True)]
)
def test_a_gpu_plays_what_the_cpu_plays_and_nothing_waits_for_it(mode: AutoresetMode, reward: str) -> None:
    count = 10_000
    cpu, gpu = (
        TetrisVectorEnv(count, output="torch", autoreset_mode=mode, device=device, reward=reward)
        for device in ("cpu", "cuda")
    )
    cpu.reset(seed=1)
    gpu.reset(seed=1)
    actions = torch.randint(0, 40, (60, count), generator=torch.Generator().manual_seed(0))
    there = actions.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        results = [gpu.step(each) for each in there]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for each, (observation, *outcome, infos) in zip(actions, results, strict=True):
        assert observation["board"].is_cuda
        expected = cpu.step(each)
        assert same(expected[0], {name: tensor.cpu() for name, tensor in observation.items()})
        assert same(expected[1:4], [tensor.cpu() for tensor in outcome])
        assert torch.equal(expected[4]["action_mask"], infos["action_mask"].cpu())
