"""``sample_normal_rows`` in NumPy: the operator's bits on a CPU, without a compiler.

The random words are those of stream.h, the transformation is that of box_muller.h on the host. NumPy has no
fused multiply-add: it is made of exact sums and products and of a sum that is rounded to odd (S. Boldo, G.
Melquiond: Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd, IEEE Trans.
Computers 57, 2008).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels.ops.normal.autograd import compute_type
from kernels.ops.philox import WORD, philox4x32

Array = NDArray[Any]
Bounds = tuple[Tensor, Tensor]
_DOMAIN = int.from_bytes(b"normal z", "big")
_AT_ONCE = 1 << 12  # blocks of four samples of a dimension: intermediate results stay in the cache
# Coefficients from the highest on; those of cosine and sine, in float64 of sine and cosine, take turns.
_LOG_32, _TURN_32 = (
    np.array([[float.fromhex(word)] for word in text.split()], np.float32)
    for text in (
        "0x1.2e4adcp+1 0x1.12e852p+1 0x1.8f31cep+0 -0x1.496a24p-4 0x1.165388p-1 -0x1.53e010p-1 "
        "0x1.000482p+0 -0x1.fffffcp+0",
        "0x1.c02e2p-3 0x1.3912a8p-4 -0x1.54dcb4p+0 -0x1.31fbf4p-1 0x1.03bc26p+2 0x1.466504p+1 "
        "-0x1.3bd39cp+2 -0x1.4abba2p+2 0x1.fffffep-1 0x1.921fb4p+1",
    )
)
_LOG_64 = 1 / np.arange(21.0, 1.0, -2.0)[:, None]
_TURN_64 = np.array([(-1) ** (k // 2) / math.factorial(k) for n in range(15, 1, -2) for k in (n, n + 1)])


@torch.no_grad()
def sample_normal_rows_reference(
    rows: Tensor, num_samples: int, *, seed: Tensor, generation: Tensor, bounds: Bounds | None = None
) -> Tensor:
    """Return what ``sample_normal_rows`` returns for tensors on a CPU; nothing is checked.

    In float64 the last bit may differ where ``|mean|`` is the largest number, or it and std are below 1e-270.
    """
    *batch, _, d = rows.shape
    problems, blocks = math.prod(batch), -(-num_samples // 4)
    parameters = rows.detach().to(compute_type(rows.dtype)).unbind(-2)[:2]
    mean, std = (x.reshape(problems, 1, 1, d).numpy() for x in parameters)
    key = seed.reshape(problems, 1, 1).numpy().astype(np.uint64) ^ _DOMAIN
    samples = np.empty((problems * blocks, 2, 2, d), mean.dtype)
    wide, step = mean.dtype == np.float64, max(1, _AT_ONCE // max(1, d))
    for first in range(0, len(samples), step):
        problem, block = np.divmod(np.arange(first, min(first + step, len(samples))), blocks)
        with np.errstate(all="ignore"):
            radius, direction = _noise(key[problem], block, int(generation) % 2**38, d, wide)
            spread, middle = std[problem] * radius, mean[problem]
            x = multiply_add(spread, direction, middle)
            x = np.where(np.isfinite(x) & (spread != 0), x, spread * direction + middle)
        samples[first : first + step] = x
    result = torch.from_numpy(samples).reshape(*batch, 4 * blocks, d)[..., :num_samples, :]
    if bounds is not None:
        low, high = (x.to(result).unsqueeze(-2) for x in bounds)
        result = torch.where(result < low, low, result)  # NaN stays
        result = torch.where(result > high, high, result)
    return result.to(rows.dtype).contiguous()


def _noise(key: Array, block: Array, generation: int, d: int, wide: bool) -> tuple[Array, Array]:
    """Return radius (L, 2, 1, d) and direction (L, 2, 2, d) of L blocks of two pairs of samples."""
    b, i = block.astype(np.uint64)[:, None, None], np.arange(d, dtype=np.uint64)
    g, mark = np.array([generation], np.uint64), np.array([[2], [3]] if wide else [[0]], np.uint64)
    upper = mark << 30 | g >> 32 << 24 | i >> 32 << 12 | b >> 32
    words = philox4x32((b & WORD, i & WORD, g & WORD, upper), (key & WORD, key >> 32))
    radius, even, odd = (_polar_64 if wide else _polar_32)(*words)
    return radius[:, :, None], np.stack((even, odd), 2)


def _polar_32(*words: Array) -> tuple[Array, Array, Array]:
    """Return radius, cosine and sine in float32; what is computed in float64 is exact there."""
    w = np.concatenate(words, 1).astype(np.uint32)
    nearest = w[:, ::2].astype(np.float32).astype(np.float64)
    u = (nearest * float.fromhex("0x1.fffffcp-33") + 2.0**-33).astype(np.float32)
    from_2 = (2 - u).astype(np.float64)
    mantissa, exponent = np.frexp(u)
    f, whole = mantissa - 1, exponent.astype(np.float32) * -np.float32(float.fromhex("0x1.62e43p+0"))
    log = multiply_add(f, _polynomial(f, _LOG_32), whole)
    radius = np.sqrt(np.maximum(log - np.float32(2e-7), (from_2 * from_2 - 1).astype(np.float32)))
    turns = w[:, 1::2].view(np.int32).astype(np.float32) * np.float32(2**-31) + np.float32(2**-32)
    far = (np.abs(turns) > 0.5).astype(np.float32)
    t = turns - np.copysign(far, turns)
    cosine, sine = _polynomial(t * t, _TURN_32.reshape(-1, 2, 1, 1, 1)) * (1 - 2 * far)
    return radius, cosine, sine * t


def _polar_64(w0: Array, w1: Array, w2: Array, w3: Array) -> tuple[Array, Array, Array]:
    """Return radius, cosine and sine in float64."""
    mantissa, exponent = np.frexp((((w0 << 32 | w1) >> 11).astype(np.float64) + 0.5) * 2.0**-53)
    small = mantissa < math.sqrt(0.5)
    f = np.where(small, 2 * mantissa, mantissa) - 1
    s = f / (2 + f)
    s2 = s * s
    log = -4 * multiply_add(s * s2, _polynomial(s2, _LOG_64), s)
    square = multiply_add((exponent - small).astype(np.float64), np.float64(-2 * math.log(2)), log)
    quarter = ((w2 >> 29) + 1 >> 1).astype(np.int64)
    x = (((w2 << 32 | w3) >> 11).astype(np.int64) - (quarter << 51) + 0.5) * (math.pi * 2.0**-52)
    x2 = x * x
    of_sine, of_cosine = _polynomial(x2, _TURN_64.reshape(-1, 2, 1, 1, 1))
    sine, rest = multiply_add(x * x2, of_sine, x), 1 - 0.5 * x2
    cosine = rest + multiply_add(x2 * x2, of_cosine, (1 - rest) - 0.5 * x2)
    radius = np.sqrt(np.where(square > 0, square, 0))
    along, across = np.where(quarter % 2, (sine, cosine), (cosine, sine))
    return radius, along * (1 - (quarter + 1 & 2)), across * (1 - (quarter & 2))


def _polynomial(x: Array, coefficients: Array) -> Array:
    """Return a polynomial by Horner's scheme; the coefficients, from the highest on, broadcast with x."""
    return functools.reduce(lambda total, lower: multiply_add(total, x, lower), coefficients)


def multiply_add(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c, rounded once.

    The three have one type. float32: any numbers. float64: finite ones, b up to 2^1000, c not the largest;
    the sign of 0 and the last bit of a result below 1e-270 may be others.
    """
    if b.dtype == np.float32:  # in float64 the product is exact
        return _sum_to_odd(a.astype(np.float64) * b, c).astype(np.float32)
    product = a * b
    # Its error (T. J. Dekker, Numer. Math. 18, 1971): a is cut to 26 digits and 27 are left, which cannot
    # overflow; b is rounded to 26 digits and 26 are left.
    a_high = (a.view(np.int64) & -(1 << 27)).view(np.float64)
    b_high = (b.view(np.int64) + (1 << 26) & -(1 << 27)).view(np.float64)
    a_low, b_low = a - a_high, b - b_high
    error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    upper, lowest = _exact_sum(c, error)
    upper, lower = _exact_sum(product, upper)
    return upper + _sum_to_odd(lower, lowest)


def _exact_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return a + b, rounded, and the error."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def _sum_to_odd(a: Array, b: Array) -> Array:
    """Return a + b in float64; of the two neighbours of an inexact sum the one whose last bit is set."""
    total, error = _exact_sum(a, b)
    inexact = np.abs(error) > 0  # False for NaN
    towards_0 = total.view(np.int64) - (inexact & ((error < 0) != (total < 0)))
    result: Array = (towards_0 | inexact).view(np.float64)
    return result
