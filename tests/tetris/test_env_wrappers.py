"""The wrappers for torch tensors report what Gymnasium's own do of the same games as NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import NormalizeReward, RecordEpisodeStatistics

from tetris.envs import EpisodeStatistics, NormalizedReward, TetrisVectorEnv

pytestmark = pytest.mark.usefixtures("step_engine")
COUNT = 9
MODES = tuple(AutoresetMode)
needs_gymnasium_1_4 = pytest.mark.skipif(
    tuple(map(int, gymnasium.__version__.split(".")[:2])) < (1, 4),
    reason="Gymnasium's own wrappers know the autoreset modes since 1.4",
)
ON_A_GPU = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
DEVICES = ("cpu", pytest.param("cuda", marks=ON_A_GPU))
PLACES = [*((mode, "cpu") for mode in MODES), pytest.param(AutoresetMode.SAME_STEP, "cuda", marks=ON_A_GPU)]


def make(mode: AutoresetMode, output: str = "torch", device: str = "cpu", limit: int = 25) -> TetrisVectorEnv:
    """Small boards, whose games end in lines removed, in an overflow or in a truncation."""
    rules: dict[str, Any] = {"width": 4, "height": 8, "pieces": "SZIO", "clear_on_overflow": True}
    return TetrisVectorEnv(
        COUNT, **rules, output=output, device=device, autoreset_mode=mode, max_episode_steps=limit
    )


def play(ours: Any, theirs: Any, steps: int = 150) -> Iterator[tuple[Any, Any]]:
    """Yield what the same actions return in both. Without autoreset, all games begin again when all ended."""
    device = ours.unwrapped.device
    rng = np.random.default_rng(0)
    for envs in (ours, theirs):
        envs.reset(seed=3)
    for _ in range(steps):
        actions = rng.integers(0, 16, COUNT)
        yield ours.step(torch.from_numpy(actions).to(device)), (expected := theirs.step(actions))
        over = expected[2] | expected[3]
        if ours.unwrapped.autoreset_mode is AutoresetMode.DISABLED and over.all():
            for envs in (ours, theirs):
                envs.reset()


@needs_gymnasium_1_4
@pytest.mark.parametrize(("mode", "device"), PLACES)
def test_statistics_are_those_of_gymnasium(mode: AutoresetMode, device: str) -> None:
    ours, theirs = EpisodeStatistics(make(mode, device=device)), RecordEpisodeStatistics(make(mode, "numpy"))
    ended, lines = 0, 0.0
    before = np.zeros(COUNT, dtype=bool)
    for (*_, infos), (_, _, terminations, truncations, expected) in play(ours, theirs):
        new = terminations | truncations
        if mode is AutoresetMode.DISABLED:  # Gymnasium's reports an end again in every step
            new, before = new & ~before, new & ~new.all()
        assert infos["_episode"].tolist() == new.tolist()
        for key, dtype in (("r", torch.float64), ("l", torch.int64)):
            found = infos["episode"][key]
            assert (found.dtype, found.shape, found.device.type) == (dtype, (COUNT,), device)
            wanted = expected["episode"][key] if new.any() else np.zeros(COUNT)
            assert found.tolist() == wanted.tolist()
        ended += int(new.sum())
        lines += infos["episode"]["r"].sum().item()
    assert ended > 40
    assert lines > 10


@needs_gymnasium_1_4
@pytest.mark.parametrize(("mode", "device"), PLACES)
def test_normalized_rewards_are_those_of_gymnasium(mode: AutoresetMode, device: str) -> None:
    ours: Any = NormalizedReward(make(mode, device=device), gamma=0.9, epsilon=1e-3)
    theirs = NormalizeReward(make(mode, "numpy"), gamma=0.9, epsilon=1e-3)
    seen = set()
    for step, (found, expected) in enumerate(play(ours, theirs)):
        assert (found[1].dtype, found[1].device.type) == (torch.float32, device)
        np.testing.assert_allclose(found[1].cpu().numpy(), expected[1], rtol=1e-5)
        seen.update(expected[1].tolist())
        if step == 120:
            ours.update_running_mean = theirs.update_running_mean = False
    assert len(seen) > 20


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("wrapper", [EpisodeStatistics, NormalizedReward])
def test_a_mask_begins_some_games_and_leaves_the_others_alone(
    wrapper: Callable[[Any], Any], device: str
) -> None:
    envs = wrapper(make(AutoresetMode.DISABLED, device=device))
    envs.reset(seed=0)
    mask = np.arange(COUNT) % 2 == 0
    for given in (mask, torch.from_numpy(mask).to(device)):
        for each in envs._sums:
            each.fill_(5)
        envs.reset(options={"reset_mask": given})
        for each in envs._sums:
            assert each.tolist() == [0, 5, 0, 5, 0, 5, 0, 5, 0]


def test_arrays_raise() -> None:
    with pytest.raises(TypeError, match='expected a TetrisVectorEnv with output="torch", got'):
        EpisodeStatistics(TetrisVectorEnv(2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gamma": 1.5}, "expected gamma from 0 to 1, got 1.5"),
        ({"epsilon": 0}, "expected epsilon greater than 0, got 0"),
    ],
)
def test_numbers_out_of_range_raise(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NormalizedReward(make(AutoresetMode.SAME_STEP), **arguments)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("mode", MODES)
def test_nothing_waits_for_a_gpu(mode: AutoresetMode) -> None:
    envs: Any = NormalizedReward(EpisodeStatistics(make(mode, device="cuda")))
    envs.reset(seed=1)
    actions = torch.zeros(COUNT, dtype=torch.int64, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(30):
            infos = envs.step(actions)[4]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert infos["episode"]["r"].is_cuda
