"""``sample_normal_rows`` in NumPy: the operator's bits on a CPU, without a compiler.

The random words are those of stream.h, the transformation is that of box_muller.h on the host.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from kernels.ops.normal.autograd import compute_type
from kernels.ops.philox import WORD, philox4x32
from kernels.ops.portable import Array, multiply_add, polynomial

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
    log = multiply_add(f, polynomial(f, _LOG_32), whole)
    radius = np.sqrt(np.maximum(log - np.float32(2e-7), (from_2 * from_2 - 1).astype(np.float32)))
    turns = w[:, 1::2].view(np.int32).astype(np.float32) * np.float32(2**-31) + np.float32(2**-32)
    far = (np.abs(turns) > 0.5).astype(np.float32)
    t = turns - np.copysign(far, turns)
    cosine, sine = polynomial(t * t, _TURN_32.reshape(-1, 2, 1, 1, 1)) * (1 - 2 * far)
    return radius, cosine, sine * t


def _polar_64(w0: Array, w1: Array, w2: Array, w3: Array) -> tuple[Array, Array, Array]:
    """Return radius, cosine and sine in float64."""
    mantissa, exponent = np.frexp((((w0 << 32 | w1) >> 11).astype(np.float64) + 0.5) * 2.0**-53)
    small = mantissa < math.sqrt(0.5)
    f = np.where(small, 2 * mantissa, mantissa) - 1
    s = f / (2 + f)
    s2 = s * s
    log = -4 * multiply_add(s * s2, polynomial(s2, _LOG_64), s)
    square = multiply_add((exponent - small).astype(np.float64), np.float64(-2 * math.log(2)), log)
    quarter = ((w2 >> 29) + 1 >> 1).astype(np.int64)
    x = (((w2 << 32 | w3) >> 11).astype(np.int64) - (quarter << 51) + 0.5) * (math.pi * 2.0**-52)
    x2 = x * x
    of_sine, of_cosine = polynomial(x2, _TURN_64.reshape(-1, 2, 1, 1, 1))
    sine, rest = multiply_add(x * x2, of_sine, x), 1 - 0.5 * x2
    cosine = rest + multiply_add(x2 * x2, of_cosine, (1 - rest) - 0.5 * x2)
    radius = np.sqrt(np.where(square > 0, square, 0))
    along, across = np.where(quarter % 2, (sine, cosine), (cosine, sine))
    return radius, along * (1 - (quarter + 1 & 2)), across * (1 - (quarter & 2))
