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

from kernels.ops.normal import sample_normal


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


def test_anderson_darling() -> None:
    """On 200,000 numbers: P(A^2 > 13) < 1e-6 (G. Marsaglia, J. Marsaglia, J. Stat. Soft. 9, 2004)."""
    z = np.sort(noise(100, 2000, seed=3).double().numpy(), axis=None)
    lower = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in z])
    upper = np.array([0.5 * math.erfc(x / math.sqrt(2)) for x in z])
    n = z.size
    weights = 2 * np.arange(1, n + 1) - 1
    assert -n - float(np.mean(weights * (np.log(lower) + np.log(upper[::-1])))) < 13


def test_tails(ten_million: NDArray[np.float64]) -> None:
    """The counts beyond 3, 4 and 5 sigma are Poisson; 5.5 deviations each: error probability 1e-6."""
    for limit in (3.0, 4.0, 5.0):
        expected = ten_million.size * math.erfc(limit / math.sqrt(2))
        count = np.count_nonzero(np.abs(ten_million) > limit)
        assert abs(count - expected) < 5.5 * math.sqrt(expected) + 1, limit


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


def test_neighbours_are_independent_in_square_and_sign(ten_million: NDArray[np.float64]) -> None:
    """In a tile of 4 x 4 places: z z' and z^2 z'^2 of 120 pairs, |z| z' of 240 and of the 16 with themselves.

    496 figures, 5.5 standard errors each: error probability 2e-5.
    """
    tiles = ten_million.reshape(250, 4, 2500, 4).transpose(1, 3, 0, 2).reshape(16, -1)
    squares = (tiles**2 - 1) / math.sqrt(2)
    sizes = (np.abs(tiles) - math.sqrt(2 / math.pi)) / math.sqrt(1 - 2 / math.pi)
    # Of two places the product has variance 1. Of one and the same, |z| z has mean 0 and variance 3, by the
    # moments of |z|; z z and z^2 z^2 have other means, which are the moments' test.
    for a, b, alike in ((tiles, tiles, 0.0), (squares, squares, 0.0), (sizes, tiles, 1 / math.sqrt(3))):
        errors = a @ b.T / math.sqrt(tiles.shape[1])
        errors[np.diag_indices(16)] *= alike
        assert np.abs(errors).max() < 5.5


def test_the_angle_is_uniform_and_independent_of_the_radius() -> None:
    """256 directions x 4 ranges of the radius on 4 million pairs: chi^2 of 1023 degrees, 6 sigma: 1e-8."""
    z = noise(800, 10_000, seed=5).double().numpy().reshape(800, -1, 2)
    direction = ((np.arctan2(z[..., 1], z[..., 0]) / (2 * math.pi) % 1.0) * 256).astype(int) % 256
    quarter = np.minimum((np.exp(-(z**2).sum(-1) / 2) * 4).astype(int), 3)
    counts = np.bincount((direction * 4 + quarter).ravel(), minlength=1024)
    expected = z.shape[0] * z.shape[1] / 1024
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi2 - 1023) < 6 * math.sqrt(2 * 1023)


@pytest.mark.parametrize("device", DEVICES)
def test_generations_and_seeds_are_uncorrelated(device: str) -> None:
    """21 pairs on 200,000 numbers, 5.5 standard errors: error probability 1e-6."""
    draws = [noise(50, 4000, seed, device, g).flatten().double() for seed in (1, 2) for g in (0, 1, 2)]
    draws.append(noise(50, 4000, 2**32 + 1, device).flatten().double())
    correlations = torch.stack(draws) @ torch.stack(draws).T / draws[0].numel()
    correlations.fill_diagonal_(0)
    assert float(correlations.abs().max()) < 5.5 / math.sqrt(draws[0].numel())
