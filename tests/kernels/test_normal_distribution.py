"""sample_normal draws independent normal numbers.

Seeds are fixed; each test states how often another seed would fail it.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from contract import DEVICES
from numpy.typing import NDArray
from torch import Tensor

from kernels import sample_normal


def noise(d: int, n: int, seed: int = 12, device: str = "cpu", generation: int = 0) -> Tensor:
    zeros = torch.zeros(d, device=device)
    return sample_normal(zeros, torch.ones_like(zeros), n, seed=seed, generation=generation)


@pytest.fixture(scope="module")
def ten_million() -> NDArray[np.float64]:
    """1000 dimensions x 10,000 samples."""
    return noise(1000, 10_000).double().numpy()


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


def test_kolmogorov_smirnov(ten_million: NDArray[np.float64]) -> None:
    """P(sqrt(n) D > 2.6) = 2 exp(-2 * 2.6^2) = 3e-6."""
    values = np.sort(ten_million, axis=None)
    n = values.size
    # D is looked for where the distribution function changes by at most 3e-4.
    grid = np.linspace(-6.7, 6.7, 20001)
    cdf = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in grid])
    below = np.searchsorted(values, grid, side="right") / n
    assert math.sqrt(n) * float(np.abs(below - cdf).max()) < 2.6


def test_dimensions_are_uncorrelated(ten_million: NDArray[np.float64]) -> None:
    """Shared noise would give 1. 499,500 pairs, 6.5 standard errors: error probability 4e-5."""
    correlations = ten_million @ ten_million.T / ten_million.shape[1]
    np.fill_diagonal(correlations, 0)
    assert np.abs(correlations).max() < 6.5 / math.sqrt(ten_million.shape[1])


def test_samples_are_uncorrelated(ten_million: NDArray[np.float64]) -> None:
    """1000 samples over 1000 dimensions, as above; and their squares, which a shared radius would show."""
    some = ten_million[:, :1000]
    for values in (some, (some**2 - 1) / math.sqrt(2)):
        correlations = values.T @ values / values.shape[0]
        np.fill_diagonal(correlations, 0)
        # The squares' products have heavier tails than normal ones.
        assert np.abs(correlations).max() < (6.5 if values is some else 14) / math.sqrt(values.shape[0])


@pytest.mark.parametrize("device", DEVICES)
def test_generations_and_seeds_are_uncorrelated(device: str) -> None:
    """21 pairs on 200,000 numbers, 5.5 standard errors: error probability 1e-6."""
    draws = [noise(50, 4000, seed, device, g).flatten().double() for seed in (1, 2) for g in (0, 1, 2)]
    draws.append(noise(50, 4000, 2**32 + 1, device).flatten().double())
    correlations = torch.stack(draws) @ torch.stack(draws).T / draws[0].numel()
    correlations.fill_diagonal_(0)
    assert float(correlations.abs().max()) < 5.5 / math.sqrt(draws[0].numel())
