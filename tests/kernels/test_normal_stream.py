"""The numbers of sample_normal: those of a second implementation, independent of all but their place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from contract import DEVICES, cuda, skip_unless_free
from torch import Tensor

from kernels import sample_normal
from kernels.ops.normal import check

SEED = 0xFEDCBA9876543210
GOLDEN = {  # seed 1, generation 2: two dimensions, four samples, by the Python implementation
    torch.float32: [
        [-2.4534883, 0.1879210, 0.6629715, -1.3458884],
        [-0.9011083, -0.3755864, 0.2901840, -0.6302912],
    ],
    torch.float64: [
        [-1.4721979169026085, 0.4125404998641237, 0.5913949031077345, 0.8454934854459383],
        [0.082562367069479, -0.7255375719675448, 1.7352174411174064, -0.5289297207026384],
    ],
}


def noise(
    d: int, n: int, *, device: str = "cpu", dtype: torch.dtype = torch.float32, **options: Any
) -> Tensor:
    options = {"seed": SEED, **options}
    zeros = torch.zeros(d, dtype=dtype, device=device)
    return sample_normal(zeros, torch.ones_like(zeros), n, **options)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-13)])
def test_it_is_the_python_implementation(device: str, dtype: torch.dtype, tolerance: float) -> None:
    for seed, generation in ((SEED, 5), (2**64 - 1, 2**38 - 1)):
        x = noise(7, 13, device=device, dtype=dtype, seed=seed, generation=generation).cpu().double()
        expected = check.noise(range(7), range(13), seed, generation, dtype)
        torch.testing.assert_close(x, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 4e-6), (torch.float64, 1e-14)])
def test_the_stream_is_the_one_that_was_published(dtype: torch.dtype, tolerance: float) -> None:
    """Literal numbers: a change of the stream would pass every other test once both sides have it."""
    x = noise(2, 4, seed=1, generation=2, dtype=dtype)
    torch.testing.assert_close(x, torch.tensor(GOLDEN[dtype], dtype=dtype), rtol=0, atol=tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_number_depends_on_its_place_alone(device: str, dtype: torch.dtype) -> None:
    whole = noise(260, 2053, device=device, dtype=dtype)
    for d, n in [(1, 1), (1, 2053), (260, 1), (4, 64), (9, 130), (130, 1024), (257, 999), (130, 7)]:
        for dim_first in (True, False):
            part = noise(d, n, device=device, dtype=dtype, dim_first=dim_first)
            assert part.shape == ((d, n) if dim_first else (n, d))
            assert torch.equal(part if dim_first else part.T, whole[:d, :n]), (d, n, dim_first)


@pytest.mark.parametrize("device", DEVICES)
def test_halves_are_float32_rounded(device: str) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        assert torch.equal(noise(8, 40, device=device, dtype=dtype), noise(8, 40, device=device).to(dtype))


@pytest.mark.parametrize("device", DEVICES)
def test_the_plain_case_is_the_others(device: str) -> None:
    """It has kernels of its own, one of few and one of many rows; a sample more is the others' case."""
    for dtype, d, n in (
        (torch.float32, 8, 128),
        (torch.float16, 131, 1024),
        (torch.bfloat16, 3301, 1024),
        (torch.float32, 13001, 132),
    ):
        mean = torch.linspace(-3, 3, d + 1, device=device)[1:]  # begins where 16 bytes do not
        std = torch.linspace(0, 2, d, device=device)
        x = sample_normal(mean, std, n, seed=SEED, dtype=dtype)
        assert torch.equal(x, sample_normal(mean, std, n + 1, seed=SEED, dtype=dtype)[:, :n]), (dtype, d)


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
        gpu = sample_normal(mean.cuda(), std.cuda(), n, seed=SEED, generation=9, **options).cpu()
        if dtype is torch.float64:  # IEEE operations alone
            assert torch.equal(cpu, gpu)
        else:
            z = noise(d, n, generation=9, **options)
            scale = mean.abs()[:, None] + std[:, None] * z.abs().clamp(min=1)
            assert float(((cpu - gpu).abs() / scale).max()) <= 4e-6


@pytest.mark.heavy
@cuda
def test_more_than_2_to_the_31_elements() -> None:
    skip_unless_free(10 * 2**30)
    for d, n in [(3, 2**30), (2**30, 3)]:
        zeros = torch.zeros(d, device="cuda")
        x = sample_normal(zeros, torch.ones_like(zeros), n, seed=7, dtype=torch.float16)
        expected = check.noise(range(d - 2, d), range(n - 2, n), 7, 0, torch.float32)
        torch.testing.assert_close(x[-2:, -2:].cpu().double(), expected, rtol=1e-3, atol=1e-3)
        assert bool(torch.isfinite(x).all())
        del x


@pytest.mark.heavy
@cuda
@pytest.mark.parametrize(("d", "n"), [(1, 2**34 + 2), (2**32 + 1, 1)])
def test_a_place_beyond_2_to_the_32(d: int, n: int) -> None:
    """The block's number and the dimension's are counted in 64 bits."""
    skip_unless_free(48 * 2**30)
    zeros = torch.zeros(d, device="cuda", dtype=torch.float16)
    x = sample_normal(zeros, torch.ones_like(zeros), n, seed=7)
    expected = check.noise(range(d - 1, d), range(n - 1, n), 7, 0, torch.float32)
    torch.testing.assert_close(x[-1:, -1:].cpu().double(), expected, rtol=1e-3, atol=1e-3)
