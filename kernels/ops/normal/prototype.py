"""The sampler in Numba, as the formulas have it.

A sample is mean + std * z, and z a pure function of (seed, generation, sample, dimension): Philox4x32-10
makes four random words of them, for four samples in a row, and the Box-Muller transform makes of two words
two normal numbers. The operator makes the same numbers in fewer instructions, up to the last places.
"""

from __future__ import annotations

import math

import numpy as np
from numba import cuda

from kernels.ops import philox
from kernels.ops.numba_launch import Array, launch

Four = tuple[float, float, float, float]

# All integers are uint64: of a signed and an unsigned one Numba makes a float.
u64 = np.uint64
_MULTIPLIER_0, _MULTIPLIER_1 = u64(philox.MULTIPLIER_0), u64(philox.MULTIPLIER_1)
_WEYL_0, _WEYL_1, _WORD = u64(philox.WEYL_0), u64(philox.WEYL_1), u64(philox.WORD)
_ROUNDS = philox.ROUNDS
_DOMAIN = u64(int.from_bytes(b"normal z", "big"))


@cuda.jit(device=True)
def words(seed: int, generation: int, block: int, dimension: int, mark: int) -> tuple[int, int, int, int]:
    """Philox4x32-10. Key: seed ^ domain. Counter: block, dimension, generation, their upper bits."""
    c0, c1, c2 = block & _WORD, dimension & _WORD, generation & _WORD
    c3 = mark | (generation >> u64(32)) << u64(24) | (dimension >> u64(32)) << u64(12) | block >> u64(32)
    key = seed ^ _DOMAIN
    k0, k1 = key & _WORD, key >> u64(32)
    for _ in range(_ROUNDS):
        product_0, product_1 = _MULTIPLIER_0 * c0, _MULTIPLIER_1 * c2
        c0, c1 = (product_1 >> u64(32)) ^ c1 ^ k0, product_1 & _WORD
        c2, c3 = (product_0 >> u64(32)) ^ c3 ^ k1, product_0 & _WORD
        k0, k1 = (k0 + _WEYL_0) & _WORD, (k1 + _WEYL_1) & _WORD
    return c0, c1, c2, c3


@cuda.jit(device=True)
def box_muller(u: float, turn: float) -> tuple[float, float]:
    """Two independent normal numbers of two uniform ones in (0, 1): a radius and an angle."""
    radius = math.sqrt(max(0.0, -2.0 * math.log(u)))
    return radius * math.cos(2.0 * math.pi * turn), radius * math.sin(2.0 * math.pi * turn)


@cuda.jit(device=True)
def uniform_float32(word: int) -> float:
    """(word + 1/2) / 2^32 with float32's 24 digits, and with 23 above 1/2; at most 1 - 2^-23."""
    u = np.float32(np.float64(np.float32(word)) * (1.0 - 2.0**-23) * 2.0**-32 + 2.0**-33)
    if u > 0.5:  # 2 - u is what the operator computes with
        u = np.float32(2.0) - np.float32(np.float32(2.0) - u)
    return np.float64(u)


@cuda.jit(device=True)
def uniform_float64(high: int, low: int) -> float:
    """The upper 53 of 64 bits, plus 1/2, over 2^53."""
    return (np.float64((high << u64(32) | low) >> u64(11)) + 0.5) * 2.0**-53


@cuda.jit(device=True)
def normals(seed: int, generation: int, block: int, dimension: int, wide: bool) -> Four:
    """The noise of the samples 4 block to 4 block + 3 in one dimension.

    float32: 32 bits for a radius, 32 for an angle. float64: 53 for each, so Philox twice, marked as such.
    """
    block, dimension = u64(block), u64(dimension)
    if wide:
        w0, w1, w2, w3 = words(seed, generation, block, dimension, u64(0b10 << 30))
        z0, z1 = box_muller(uniform_float64(w0, w1), uniform_float64(w2, w3))
        w0, w1, w2, w3 = words(seed, generation, block, dimension, u64(0b11 << 30))
        z2, z3 = box_muller(uniform_float64(w0, w1), uniform_float64(w2, w3))
    else:
        w0, w1, w2, w3 = words(seed, generation, block, dimension, u64(0))
        z0, z1 = box_muller(uniform_float32(w0), (np.float64(w1) + 0.5) * 2.0**-32)
        z2, z3 = box_muller(uniform_float32(w2), (np.float64(w3) + 0.5) * 2.0**-32)
    return z0, z1, z2, z3


@cuda.jit
def sample_kernel(mean: Array, std: Array, seed: int, generation: int, wide: bool, samples: Array) -> None:
    """A thread owns the blocks i, i + threads, ...: four samples in a row of one dimension."""
    dimensions, count = samples.shape
    blocks = (count + 3) // 4
    for i in range(cuda.grid(1), dimensions * blocks, cuda.gridsize(1)):
        dimension, block = i // blocks, i % blocks
        noise = normals(seed, generation, block, dimension, wide)
        for k in range(min(4, count - 4 * block)):
            samples[dimension, 4 * block + k] = mean[dimension] + std[dimension] * noise[k]


@cuda.jit
def sample_backward_kernel(
    grad: Array, seed: int, generation: int, wide: bool, grad_mean: Array, grad_std: Array
) -> None:
    """A thread owns the dimensions i, i + threads, ... It makes the noise again: nothing was kept."""
    dimensions, count = grad.shape
    for dimension in range(cuda.grid(1), dimensions, cuda.gridsize(1)):
        of_mean, of_std = 0.0, 0.0
        for block in range((count + 3) // 4):
            noise = normals(seed, generation, block, dimension, wide)
            for k in range(min(4, count - 4 * block)):
                of_mean += grad[dimension, 4 * block + k]
                of_std += grad[dimension, 4 * block + k] * noise[k]
        grad_mean[dimension], grad_std[dimension] = of_mean, of_std


def forward(mean: Array, std: Array, num_samples: int, *, seed: int, generation: int = 0) -> Array:
    """Return samples of N(mean, std^2), (dimensions, num_samples); float32 and float64 differ in noise."""
    noise = (u64(seed), u64(generation), mean.dtype == np.float64)
    samples = np.empty((len(mean), num_samples), mean.dtype)
    return launch(sample_kernel, mean, std, *noise, like=[samples])[0]


def backward(
    grad: Array, mean: Array, std: Array, num_samples: int, *, seed: int, generation: int = 0
) -> tuple[Array, Array]:
    """Return the gradients with respect to mean and std."""
    noise = (u64(seed), u64(generation), mean.dtype == np.float64)
    grad_mean, grad_std = launch(sample_backward_kernel, grad, *noise, like=[mean, std])
    return grad_mean, grad_std
