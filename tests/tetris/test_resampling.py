"""Importance splitting: emulated threads, a GPU and the engine on the CPU resample as the
Python does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_games import emulated

from tetris import Policy, Rollout, Rules, Streams
from tetris.play import engines as native
from tetris.play.splitting import MOST_STREAMS, StreamWeights


@pytest.fixture(scope="module")
def operators() -> Any:
    """The operators of emulated_resample.cpp."""
    return emulated(native.resampling_extension(), "resample")


def shuffled(games: Rollout, generator: torch.Generator) -> None:
    """Give the streams stacks of all heights, and let some have ended."""
    tall = torch.randint(0, 25, games.columns.shape[:2], generator=generator).unsqueeze(-1)
    height = (tall + torch.randint(-4, 5, games.columns.shape, generator=generator)).clamp(
        0, 24
    )
    games.columns.copy_((1 << height) - 1)
    ended = torch.rand(games.stream_games.shape, generator=generator) < 0.1
    games._games += ended.long().to(games._games.device)


def check_resampling(
    operators: Any, streams: int, rules: Rules, population: int, shared: bool, device: str
) -> None:
    """Resample the same streams some times by the Python on the CPU and by the kernel on a
    device."""
    games, same = (
        Rollout(
            Policy(torch.zeros(population, 9)), Streams(rules, streams, shared=shared), where
        )
        for where in ("cpu", device)
    )
    expected, actual = StreamWeights(games), StreamWeights(same, operators)
    moved = False
    for step, bits in enumerate((0, 4095, 1234, 777)):
        if step == 1:  # from the next step on the unit of their weights is 2^-40
            for weights in (expected, actual):
                weights._level_sums.zero_()
                weights._weight[:, 1:] = 1.0
        shuffled(games, torch.Generator().manual_seed(step))
        shuffled(same, torch.Generator().manual_seed(step))
        source, _ = expected.resample(bits, counts=step > 0)
        found, columns = actual.resample(bits, counts=step > 0)
        assert torch.equal(found.cpu(), source)
        for name in ("_last_games", "_weight", "_level_sums", "_unit", "ended"):
            assert torch.equal(getattr(actual, name).cpu(), getattr(expected, name)), name
        games.branch(source)
        same.branch(found, columns)
        assert torch.equal(same.columns.cpu(), games.columns)
        moved |= not torch.equal(source, torch.arange(streams).expand_as(source))
    assert streams == 2 or (moved and expected.ended.min() > 0 and expected._unit.max() < 1)


@pytest.mark.parametrize(
    ("streams", "width", "population", "shared"),
    [(2, 10, 2, True), (31, 4, 3, False), (1100, 7, 2, True), (MOST_STREAMS, 10, 1, True)],
)
def test_it_resamples_as_the_python_does(
    operators: Any, streams: int, width: int, population: int, shared: bool
) -> None:
    for each in (operators, Rollout(Policy(torch.zeros(1, 9)), Streams()).operators):
        check_resampling(each, streams, Rules(width, 24), population, shared, "cpu")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    ("streams", "population", "shared"),
    [(31, 513, False), (1100, 2, True), (MOST_STREAMS, 3, True)],
)
def test_a_gpu_resamples_as_the_python_does(
    streams: int, population: int, shared: bool
) -> None:
    operators = native.load(native.resampling_extension())
    check_resampling(operators, streams, Rules(10, 24), population, shared, "cuda")


def test_arguments_are_checked(operators: Any) -> None:
    games = Rollout(Policy([0.0], "holes"), Streams(count=4), "python")
    weights = StreamWeights(games)
    good = [
        *(
            games.columns,
            games.stream_games,
            weights._last_games,
            weights._weight,
            weights._level_sums,
            weights._unit,
        ),
        *(weights.ended, 1, True, 0, 0),
    ]
    operators.resample(*good)
    for index, bad, message in (
        (0, games.columns.long(), "expected columns of the documented type"),
        (0, games.columns[0], "expected columns .population, streams, width."),
        (3, weights._weight.float(), "expected weight of the documented type"),
        (4, weights._level_sums[:, :8], "expected held of the documented type"),
        (7, 0, "expected a count from 1"),
    ):
        with pytest.raises(RuntimeError, match=message):
            operators.resample(*(bad if i == index else each for i, each in enumerate(good)))
    wide = Rollout(Policy([0.0], "holes"), Streams(count=MOST_STREAMS + 1), "python")
    many = StreamWeights(wide)
    with pytest.raises(RuntimeError, match="at most 8192 streams"):
        operators.resample(
            *(
                wide.columns,
                wide.stream_games,
                many._last_games,
                many._weight,
                many._level_sums,
                many._unit,
            ),
            *(many.ended, 1, True, 0, 0),
        )
