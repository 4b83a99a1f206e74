"""sample_normal on a batch of problems, with seeds and generation in tensors."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from contract import DEVICES, assert_same
from torch import Tensor

from kernels import sample_normal, sample_normal_rows

SEEDS = [
    1,
    -1,
    2**62 + 5,
    -(2**63),
    7,
    0,
]  # of six problems; negative ones are seeds above 2^63 - 1


def packed(
    d: int,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    batch: tuple[int, ...] = (2, 3),
) -> Tensor:
    """Returns (..., 4, d): what an optimiser keeps of a problem, the mean first, then the
    deviation."""
    count = 4 * d * torch.Size(batch).numel()
    return torch.linspace(0.25, 2, count, dtype=dtype, device=device).view(*batch, 4, d)


def single(
    mean: Tensor, std: Tensor, n: int, generation: int, options: dict[str, Any]
) -> Tensor:
    """Returns the samples of a batch (2, 3), one call a problem."""
    problems = zip(mean.flatten(0, 1), std.flatten(0, 1), SEEDS, strict=True)
    calls = [
        sample_normal(*each, n, seed=seed % 2**64, generation=generation, **options)
        for *each, seed in problems
    ]
    return torch.stack(calls).unflatten(0, (2, 3))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("d", "n"), [(8, 260), (33, 7)])
def test_a_problem_may_have_a_generation_of_its_own(device: str, d: int, n: int) -> None:
    rows = packed(d, device)
    seeds = torch.tensor(SEEDS, device=device).view(2, 3)
    generations = torch.tensor([[0, 1, 2], [2, 2**32 + 9, 0]], device=device)
    samples = sample_normal_rows(rows, n, seed=seeds, generation=generations)
    for problem in itertools.product(range(2), range(3)):
        key = {"seed": seeds[problem], "generation": generations[problem]}
        assert_same(samples[problem], sample_normal_rows(rows[problem], n, **key))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("dtype", "dim_first", "options"),
    [
        (torch.float32, True, {}),
        (torch.float32, False, {}),
        (torch.float64, False, {"bounds": (0.3, 1.9)}),
        (torch.bfloat16, True, {"shared_noise": True, "antithetic": True}),
    ],
)
def test_a_problem_has_the_numbers_of_a_call_of_its_own(
    device: str, dtype: torch.dtype, dim_first: bool, options: dict[str, Any]
) -> None:
    seeds = torch.tensor(SEEDS, device=device).view(2, 3)
    for d, n in [(1, 5), (20, 128), (8, 260), (33, 7), (130, 36)]:
        rows = packed(d, device, dtype)
        mean, std = rows[..., 0, :], rows[..., 1, :]
        for generation in (0, 2**32 + 9):
            expected = single(mean, std, n, generation, {**options, "dim_first": dim_first})
            number = torch.tensor(generation, device=device)
            for kind in (generation, number):
                samples = sample_normal(
                    mean, std, n, seed=seeds, generation=kind, dim_first=dim_first, **options
                )
                assert samples.is_contiguous()
                assert_same(samples, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("problems", "d", "n"), [(1024, 20, 128), (3, 5000, 40), (70000, 4, 4)]
)
def test_many_problems(device: str, problems: int, d: int, n: int) -> None:
    """More than a side of the grid has blocks, and as many dimensions a thread as there are
    variants."""
    mean = torch.linspace(-1, 1, problems * d).view(1, problems, d).to(device)
    std = torch.ones(d, device=device)
    seeds = torch.arange(problems, device=device).view(1, problems)
    samples = sample_normal(
        mean,
        std.expand_as(mean),
        n,
        seed=seeds,
        generation=torch.tensor(3, device=device),
        dim_first=False,
    )
    for p in {0, 1, problems // 2, problems - 1}:
        assert_same(
            samples[0, p],
            sample_normal(mean[0, p], std, n, seed=p, generation=3, dim_first=False),
        )
    across = sample_normal(mean, std.expand_as(mean), n, seed=seeds, generation=3)
    assert_same(across, samples.mT)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("dtype", "batch"), [(torch.float64, ()), (torch.float32, (2, 3)), (torch.bfloat16, (0,))]
)
def test_rows_are_mean_and_standard_deviation(
    device: str, dtype: torch.dtype, batch: tuple[int, ...]
) -> None:
    seeds = torch.arange(torch.Size(batch).numel(), device=device).view(batch)
    generation = torch.tensor(3, device=device)
    for d, n in [(1, 5), (20, 128), (33, 7)]:
        rows = packed(d, device, dtype, batch)
        low, high = rows[..., 2, :] - 1, rows[..., 3, :]
        for bounds in (None, (low, high), (low.new_full((d,), 0.3), low.new_full((d,), 0.9))):
            options: dict[str, Any] = {
                "seed": seeds,
                "generation": generation,
                "bounds": bounds,
            }
            expected = sample_normal(
                rows[..., 0, :], rows[..., 1, :], n, dim_first=False, **options
            )
            assert expected.shape == (*batch, n, d)
            for given in (
                rows,
                rows[..., :2, :],
                rows.mT.contiguous().mT,
                rows.clone().requires_grad_(),
            ):
                assert_same(sample_normal_rows(given, n, **options).detach(), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_those_of_single_calls(device: str) -> None:
    n = 2500
    mean, std = (packed(6, device)[..., i, :].clone().requires_grad_() for i in range(2))
    seeds = torch.tensor(SEEDS, device=device).view(2, 3)
    for dim_first in (True, False):
        samples = sample_normal(mean, std, n, seed=seeds, dim_first=dim_first)
        alone = single(mean, std, n, 0, {"dim_first": dim_first})
        weights = torch.linspace(-1, 1, samples.numel(), device=device).view(samples.shape)
        ours, theirs = (torch.autograd.grad(x, (mean, std), weights) for x in (samples, alone))
        assert_same(ours, theirs, rtol=1e-5, atol=1e-5)


def test_rows_of_a_packed_tensor_are_not_copied() -> None:
    rows, seeds, generation = packed(8, batch=(3,)), torch.arange(3), torch.tensor(0)

    sample_normal_rows(rows, 12, seed=seeds, generation=generation)  # loads the operators
    with torch.profiler.profile() as profile:
        sample_normal_rows(rows, 12, seed=seeds, generation=generation)
    assert not {"aten::contiguous", "aten::clone", "aten::copy_"} & {
        event.key for event in profile.events()
    }


@pytest.mark.skipif(sys.platform != "linux", reason="reads and resets Linux's peak of memory")
def test_many_small_problems_need_no_more_memory_than_their_samples() -> None:
    def peak_mb() -> float:
        status = Path("/proc/self/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024

    x, seeds = torch.ones(200_000, 1), torch.arange(200_000)
    sample_normal(x, x, 1, seed=seeds)
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_mb()
    sample_normal(x, x, 1, seed=seeds)
    assert peak_mb() - before < 20
