"""The kernel of importance splitting: it compiles, emulated threads and a GPU draw what the Python draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels.build import CompilerMissingError, compile_check
from kernels.cuda import find_nvcc, known_architectures
from tetris import Rollout, Rules, native
from tetris.splitting import MOST_STREAMS, Masses, _CudaMasses


@pytest.fixture(scope="module")
def emulated(load_emulated: Callable[..., Any]) -> Any:
    """The operators of emulated_resample.cpp."""
    return load_emulated(
        "resample", native.resampling_extension().include_dirs, "draw of importance splitting"
    )


def shuffled(games: Rollout, generator: torch.Generator) -> None:
    """Give the streams walls of all heights, and let some have ended."""
    tall = torch.randint(0, 25, games.columns.shape[:2], generator=generator).unsqueeze(-1)
    height = (tall + torch.randint(-4, 5, games.columns.shape, generator=generator)).clamp(0, 24)
    games.columns.copy_((1 << height) - 1)
    ended = torch.rand(games._games.shape, generator=generator) < 0.1
    games._games += ended.long().to(games._games.device)


def check_draws(streams: int, rules: Rules, population: int, shared: bool, device: str) -> None:
    """Draw some times from the same streams by the Python on the CPU and by the kernel on a device."""
    weights = torch.zeros(population, 9)
    games, same = (
        Rollout(weights, rules, streams, device=where, share_streams=shared) for where in ("cpu", device)
    )
    expected, actual = Masses(games), _CudaMasses(same)
    moved = False
    for step, bits in enumerate((0, 4095, 1234, 777)):
        shuffled(games, torch.Generator().manual_seed(step))
        shuffled(same, torch.Generator().manual_seed(step))
        source = expected.draw(bits, counts=step > 0)
        assert torch.equal(actual.draw(bits, counts=step > 0).cpu(), source)
        for name in ("_before", "_mass", "_held", "ends"):
            assert torch.equal(getattr(actual, name).cpu(), getattr(expected, name)), name
        games.branch(source)
        same.branch(source.to(device))
        moved |= not torch.equal(source, torch.arange(streams).expand_as(source))
    assert streams == 2 or (moved and expected.ends.min() > 0)


@pytest.mark.parametrize(
    ("streams", "width", "population", "shared"),
    [
        (2, 10, 2, True),
        (31, 4, 1, True),
        (264, 10, 3, False),
        (1100, 7, 2, False),
        (MOST_STREAMS, 10, 1, True),
    ],
)
def test_it_draws_what_the_python_draws(
    emulated: Any, monkeypatch: pytest.MonkeyPatch, streams: int, width: int, population: int, shared: bool
) -> None:
    monkeypatch.setattr(native, "resampling_operators", lambda: emulated)
    check_draws(streams, Rules(width, 24), population, shared, "cpu")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    ("streams", "population", "shared"),
    [(2, 2, True), (31, 1, True), (264, 513, False), (1100, 2, False), (MOST_STREAMS, 3, True)],
)
def test_a_gpu_draws_what_the_python_draws(streams: int, population: int, shared: bool) -> None:
    check_draws(streams, Rules(10, 24), population, shared, "cuda")


def test_arguments_are_checked(emulated: Any) -> None:
    games = Rollout([[0.0]], streams=4, features="holes")
    masses = Masses(games)
    good = [
        *(games.columns, games.stream_games, masses._before, masses._mass, masses._held, masses.ends),
        *(1, True, 0, 0),
    ]
    emulated.draw(*good)
    for index, bad, message in (
        (0, games.columns.long(), "expected int32 columns"),
        (0, games.columns[0], "expected contiguous columns of shape"),
        (1, games.stream_games[:, :3], "expected contiguous int64 games"),
        (2, masses._before.int(), "expected contiguous int64 games"),
        (4, masses._held[:, :8], "expected contiguous held"),
        (5, masses.ends.unsqueeze(0), "expected ends of shape"),
        (6, 0, "expected a count from 1"),
    ):
        with pytest.raises(RuntimeError, match=message):
            emulated.draw(*(bad if i == index else each for i, each in enumerate(good)))
    wide = Rollout([[0.0]], streams=MOST_STREAMS + 1, features="holes")
    many = Masses(wide)
    with pytest.raises(RuntimeError, match="at most 8192 streams"):
        emulated.draw(
            wide.columns, wide.stream_games, many._before, many._mass, many._held, many.ends, 1, True, 0, 0
        )


@pytest.mark.slow
def test_the_kernel_compiles_for_every_gpu() -> None:
    try:
        newest = known_architectures(find_nvcc())[-1]
    except CompilerMissingError as error:
        pytest.skip(str(error))
    library = native.resampling_extension()
    compile_check(
        library.sources[0],
        ["sm_75", "sm_80", "sm_90", newest],
        include_dirs=library.include_dirs,
        defines=library.defines,
    )
