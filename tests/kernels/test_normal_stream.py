"""The numbers of sample_normal: those of a second implementation, and independent normal ones.

Seeds are fixed; each statistical test states how often another seed would fail it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from contract import DEVICES, cuda, skip_unless_free
from numpy.typing import NDArray
from test_philox import KNOWN_ANSWERS
from torch import Tensor

from kernels import sample_normal
from kernels.ops import cases
from kernels.ops.philox import philox4x32

SEED = 0xFEDCBA9876543210


def noise(
    d: int, n: int, *, device: str = "cpu", dtype: torch.dtype = torch.float32, **options: Any
) -> Tensor:
    options = {"seed": SEED, **options}
    zeros = torch.zeros(d, dtype=dtype, device=device)
    return sample_normal(zeros, torch.ones_like(zeros), n, **options)


def test_philox_has_the_known_answers() -> None:
    for texts in KNOWN_ANSWERS:
        counter, key, result = (tuple(int(word, 16) for word in text.split()) for text in texts)
        assert philox4x32(counter, key) == result  # type: ignore[arg-type]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-13)]
)
def test_it_is_the_python_implementation(
    device: str, dtype: torch.dtype, tolerance: float
) -> None:
    for seed, generation in ((SEED, 5), (2**64 - 1, 2**38 - 1)):
        x = (
            noise(7, 13, device=device, dtype=dtype, seed=seed, generation=generation)
            .cpu()
            .double()
        )
        expected = cases.noise(torch.arange(7), torch.arange(13), seed, generation, dtype)
        torch.testing.assert_close(x, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_number_depends_on_its_place_alone(device: str, dtype: torch.dtype) -> None:
    whole = noise(260, 2053, device=device, dtype=dtype)
    for d, n in [
        (1, 1),
        (1, 2053),
        (260, 1),
        (4, 64),
        (9, 130),
        (130, 1024),
        (257, 999),
        (130, 7),
    ]:
        for dim_first in (True, False):
            part = noise(d, n, device=device, dtype=dtype, dim_first=dim_first)
            assert part.shape == ((d, n) if dim_first else (n, d))
            assert torch.equal(part if dim_first else part.T, whole[:d, :n]), (d, n, dim_first)


@pytest.mark.parametrize("device", DEVICES)
def test_the_plain_case_is_the_others(device: str) -> None:
    """It has kernels of its own, one of few and one of many rows; a sample more is the others'
    case."""
    for dtype, d, n in (
        (torch.float32, 8, 128),
        (torch.float16, 131, 1024),
        (torch.bfloat16, 3301, 1024),
        (torch.float32, 13001, 132),
    ):
        mean = torch.linspace(-3, 3, d + 1, device=device)[1:]  # begins where 16 bytes do not
        std = torch.linspace(0, 2, d, device=device)
        x = sample_normal(mean, std, n, seed=SEED, dtype=dtype)
        assert torch.equal(x, sample_normal(mean, std, n + 1, seed=SEED, dtype=dtype)[:, :n]), (
            dtype,
            d,
        )


@cuda
@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        (torch.float32, {"antithetic": True}),
        (torch.float32, {"shared_noise": True}),
        (torch.float64, {"bounds": (-1.0, 1.5)}),
    ],
)
def test_cpu_and_cuda_draw_the_same(dtype: torch.dtype, options: dict[str, Any]) -> None:
    for d, n in [(64, 40000), (1001, 257)]:
        mean = torch.linspace(-3, 3, d, dtype=dtype)
        std = torch.linspace(0, 2, d, dtype=dtype)
        cpu = sample_normal(mean, std, n, seed=SEED, generation=9, **options)
        gpu = sample_normal(
            mean.cuda(), std.cuda(), n, seed=SEED, generation=9, **options
        ).cpu()
        if dtype is torch.float64:  # IEEE operations alone
            assert torch.equal(cpu, gpu)
        else:
            z = noise(d, n, generation=9, **options)
            scale = mean.abs()[:, None] + std[:, None] * z.abs().clamp(min=1)
            assert float(((cpu - gpu).abs() / scale).max()) <= 4e-6


@pytest.mark.heavy
@cuda
def test_more_than_2_to_the_31_elements_and_places_beyond_2_to_the_32() -> None:
    """The block's number and the dimension's are counted in 64 bits."""
    for d, n, gigabytes in (
        (3, 2**30, 10),
        (2**30, 3, 10),
        (1, 2**34 + 2, 48),
        (2**32 + 1, 1, 48),
    ):
        skip_unless_free(gigabytes * 2**30)
        zeros = torch.zeros(d, device="cuda", dtype=torch.float16)
        x = sample_normal(zeros, torch.ones_like(zeros), n, seed=7)
        rows, columns = torch.arange(max(0, d - 2), d), torch.arange(max(0, n - 2), n)
        expected = cases.noise(rows, columns, 7, 0, torch.float32)
        torch.testing.assert_close(x[-2:, -2:].cpu().double(), expected, rtol=1e-3, atol=1e-3)
        del x


@pytest.fixture(scope="module")
def ten_million() -> NDArray[np.float64]:
    """1000 dimensions x 10,000 samples."""
    return noise(1000, 10_000, seed=12).double().numpy()


def test_moments(ten_million: NDArray[np.float64]) -> None:
    """Six, each within 5 standard errors: error probability 6 * 6e-7."""
    n = ten_million.size
    power = np.ones_like(ten_million)
    for k in range(1, 7):
        power *= ten_million
        moment = np.mean(power)
        expected = math.prod(range(1, k, 2)) if k % 2 == 0 else 0
        variance = math.prod(range(1, 2 * k, 2)) - expected**2
        assert abs(moment - expected) < 5 * math.sqrt(variance / n), (k, moment)


def test_dimensions_are_uncorrelated(ten_million: NDArray[np.float64]) -> None:
    """Shared noise would give 1. 499,500 pairs, 6.5 standard errors: error probability 4e-5."""
    correlations = ten_million @ ten_million.T / ten_million.shape[1]
    np.fill_diagonal(correlations, 0)
    assert np.abs(correlations).max() < 6.5 / math.sqrt(ten_million.shape[1])


def test_samples_are_uncorrelated(ten_million: NDArray[np.float64]) -> None:
    """1000 samples over 1000 dimensions, as above; and their squares, which a shared radius
    would show."""
    some = ten_million[:, :1000]
    for values in (some, (some**2 - 1) / math.sqrt(2)):
        correlations = values.T @ values / values.shape[0]
        np.fill_diagonal(correlations, 0)
        # The squares' products have heavier tails than normal ones.
        assert np.abs(correlations).max() < (6.5 if values is some else 14) / math.sqrt(
            values.shape[0]
        )


@pytest.mark.parametrize("device", DEVICES)
def test_generations_and_seeds_are_uncorrelated(device: str) -> None:
    """21 pairs on 200,000 numbers, 5.5 standard errors: error probability 1e-6."""
    sets = [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (2**32 + 1, 0)]
    draws = [
        noise(50, 4000, device=device, seed=s, generation=g).flatten().double() for s, g in sets
    ]
    correlations = torch.stack(draws) @ torch.stack(draws).T / draws[0].numel()
    correlations.fill_diagonal_(0)
    assert float(correlations.abs().max()) < 5.5 / math.sqrt(draws[0].numel())
