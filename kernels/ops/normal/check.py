"""What ``python -m kernels check normal`` compares: with a seed the sampler is a function like any other.

The reference's noise is made here, number by number, in the words of the definition.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Generator, Tensor

from kernels.ops.check import Case
from kernels.ops.normal import sample_normal, sample_normal_reference
from kernels.ops.philox import philox4x32, split64

_DOMAIN = int.from_bytes(b"normal z", "big")  # separates the keys from those of other users of Philox


@functools.lru_cache(maxsize=2)
def noise(dimensions: int, samples: int, seed: int, generation: int, dtype: torch.dtype) -> Tensor:
    """Return z, (dimensions, samples): the noise of float64, or that of all other types.

    Two samples in a row share a pair of uniform numbers, from which the Box-Muller transform makes them.
    """
    pairs = [(dimension, pair) for dimension in range(dimensions) for pair in range((samples + 1) // 2)]
    uniform = _uniform_float64 if dtype is torch.float64 else _uniform_float32
    u, turn = torch.tensor([uniform(seed, generation, *pair) for pair in pairs], dtype=torch.float64).T
    radius, angle = (-2.0 * u.log()).clamp(min=0.0).sqrt(), 2.0 * math.pi * turn
    z = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    return z.view(dimensions, -1)[:, :samples]


def _words(seed: int, generation: int, block: int, dimension: int, mark: int = 0) -> tuple[int, ...]:
    """Return the four words of a block of four samples and a dimension."""
    (b, b_up), (d, d_up), (g, g_up) = split64(block), split64(dimension), split64(generation)
    return philox4x32((b, d, g, mark | g_up << 24 | d_up << 12 | b_up), split64(seed ^ _DOMAIN))


def _uniform_float32(seed: int, generation: int, dimension: int, pair: int) -> tuple[float, float]:
    """A word for the radius, rounded as the operator does it (box_muller.h), and a word for the angle."""
    block, half = divmod(pair, 2)
    of_radius, of_angle = _words(seed, generation, block, dimension)[2 * half : 2 * half + 2]
    u = _float32(_float32(of_radius) * (1.0 - 2.0**-23) * 2.0**-32 + 2.0**-33)
    if u > 0.5:
        u = 2.0 - _float32(2.0 - u)
    return u, (of_angle + 0.5) * 2.0**-32


def _float32(x: float) -> float:
    return float(torch.tensor(x, dtype=torch.float32))


def _uniform_float64(seed: int, generation: int, dimension: int, pair: int) -> tuple[float, float]:
    """53 bits for each of the two."""
    block, half = divmod(pair, 2)
    w0, w1, w2, w3 = _words(seed, generation, block, dimension, 1 << 31 | half << 30)
    return ((w0 << 32 | w1) >> 11) * 2.0**-53 + 2.0**-54, ((w2 << 32 | w3) >> 11) * 2.0**-53 + 2.0**-54


def _reference(mean: Tensor, std: Tensor, num_samples: int, seed: int, generation: int) -> Tensor:
    """What ``sample_normal`` promises, on the CPU."""
    z = noise(len(mean), num_samples, seed, generation, mean.dtype)
    return sample_normal_reference(mean, std, z.to(mean.dtype))


def _inputs(generator: Generator, dimensions: int) -> tuple[Tensor, Tensor]:
    """Means and standard deviations."""
    mean, log_std = torch.randn(2, dimensions, generator=generator, dtype=torch.float64)
    return mean, log_std.exp()


# The numbers of samples and dimensions are no multiples of the kernels' tiles. Seed and generation use all of
# their words.
CASES = {
    "normal": Case(
        reference=_reference,
        operator=sample_normal,
        inputs=_inputs,
        small=(5,),
        large=(301,),
        arguments={"num_samples": 13, "seed": 2**63 + 12345, "generation": 2**32 + 7},
    )
}
