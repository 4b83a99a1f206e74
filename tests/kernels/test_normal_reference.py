"""The sampler in NumPy has the bits of the compiled operator on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kernels import sample_normal_rows
from kernels.ops.normal import sample_normal_rows_reference
from kernels.ops.normal.reference import multiply_add


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("batch", "d", "n", "generation"),
    [((), 100, 10_000, 0), ((2, 3), 5, 13, 2**38 - 1), ((3,), 5000, 2, -1), ((), 1, 1, 7), ((2,), 3, 0, 0)],
)
def test_it_is_the_operator(dtype: Any, batch: tuple[int, ...], d: int, n: int, generation: int) -> None:
    generator = torch.Generator().manual_seed(d)
    rows = torch.randn(*batch, 4, d, dtype=torch.float64, generator=generator).to(dtype)
    rows[..., 1, :] = rows[..., 1, :].abs().clamp(min=0.1) - 0.1  # some are 0
    seed = torch.randint(-(2**63), 2**63 - 1, batch, generator=generator)
    zero, own = rows.new_zeros(d), rows[..., 0, :]
    for bounds in (None, (zero, zero + 1), (own - 1, own + 0.5)):
        noise: Any = {"seed": seed, "generation": torch.tensor(generation), "bounds": bounds}
        x, expected = (f(rows, n, **noise) for f in (sample_normal_rows_reference, sample_normal_rows))
        assert (x.shape, x.dtype) == (expected.shape, expected.dtype)
        assert x.numpy().tobytes() == expected.numpy().tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_multiply_add_rounds_once(dtype: Any) -> None:
    """The product is a little less than half a unit; rounded to it, the sums would be ties."""
    eps = np.full(2, np.finfo(dtype).eps)
    c = np.array([1, -1], dtype) * (1 + eps)
    assert np.array_equal(multiply_add(eps / 2 * (1 + eps), 1 - eps, c), c)
