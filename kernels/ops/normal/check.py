"""What ``python -m kernels check normal`` compares: with a seed the sampler is a function like any other.

The reference's noise is made here, number by number, in the words of the definition.
"""

from __future__ import annotations

import functools
import itertools
import math

import torch
from torch import Generator, Tensor

from kernels.ops.check import Case
from kernels.ops.normal import sample_normal, sample_normal_reference
from kernels.ops.philox import philox4x32, split64

_DOMAIN = int.from_bytes(b"normal z", "big")  # separates the keys from those of other users of Philox


@functools.lru_cache(maxsize=2)
def noise(dimensions: range, samples: range, seed: int, generation: int, dtype: torch.dtype) -> Tensor:
    """Return z, (dimensions, samples): the noise of float64, or that of all other types.

    Two samples in a row share a pair of uniform numbers, from which the Box-Muller transform makes them.
    """
    words = []
    for dimension, sample in itertools.product(dimensions, samples):
        block, half = sample // 4, sample % 4 // 2
        if dtype is torch.float64:
            words.append(_words(seed, generation, block, dimension, 1 << 31 | half << 30))
        else:
            words.append(_words(seed, generation, block, dimension)[2 * half : 2 * half + 2])
    w = torch.tensor(words).T.view(-1, len(dimensions), len(samples))
    if dtype is torch.float64:  # 53 bits each for radius and angle
        u, turn = (w[i].double() * 2.0**-32 + (w[i + 1] >> 11).double() * 2.0**-53 + 2.0**-54 for i in (0, 2))
    else:  # a word each; that of the radius is rounded as in box_muller.h
        u = (w[0].float().double() * (1.0 - 2.0**-23) * 2.0**-32 + 2.0**-33).float().double()
        u = torch.where(u > 0.5, 2.0 - (2.0 - u).float().double(), u)
        turn = (w[1].double() + 0.5) * 2.0**-32
    radius, angle = (-2.0 * u.log()).clamp(min=0.0).sqrt(), 2.0 * math.pi * turn
    return radius * torch.where(torch.tensor(samples) % 2 == 0, angle.cos(), angle.sin())


def _words(seed: int, generation: int, block: int, dimension: int, mark: int = 0) -> tuple[int, ...]:
    """Return the four words of a block of four samples and a dimension."""
    (b, b_up), (d, d_up), (g, g_up) = split64(block), split64(dimension), split64(generation)
    return philox4x32((b, d, g, mark | g_up << 24 | d_up << 12 | b_up), split64(seed ^ _DOMAIN))


def _reference(mean: Tensor, std: Tensor, num_samples: int, seed: int, generation: int) -> Tensor:
    """What ``sample_normal`` promises, on the CPU."""
    z = noise(range(len(mean)), range(num_samples), seed, generation, mean.dtype)
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
