"""What ``sample_normal`` takes, and what it says of anything else."""

from __future__ import annotations

import numbers
import operator
from typing import Any

import torch
from torch import Tensor

from kernels.ops.library import check_tensor
from kernels.ops.normal.autograd import compute_type

Bound = float | Tensor
"""One number, or one a dimension."""

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_BOUNDS = (*DTYPES, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_INTEGERS = (torch.int64,)
MAX_SAMPLES = 2**46
_MAX_GENERATION = 2**38
_REAL: Any = numbers.Real  # NumPy's scalars among them


def as_int(name: str, value: Any) -> int:
    """Return an integer of any kind as an int; one that torch.compile traces stays as it is."""
    if type(value) is int:
        return value
    if isinstance(value, torch.SymInt):
        return value  # type: ignore[return-value]
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise TypeError(f"expected {name} to be an int, got {type(value).__name__}")


def check_parameters(mean: Any, std: Any, num_samples: Any, dtype: torch.dtype | None) -> None:
    """Raise TypeError or ValueError where samples of these cannot be drawn."""
    check_tensor("mean", mean, DTYPES)
    if mean.dim() == 0:
        raise ValueError("expected mean of shape (..., d), got ()")
    check_tensor("std", std, (mean.dtype,), mean.device, (mean.shape,))
    if dtype is not None and dtype not in DTYPES:
        raise TypeError(f"expected a dtype out of float64, float32, float16 and bfloat16, got {dtype!r}")
    if not 0 <= as_int("num_samples", num_samples) < MAX_SAMPLES:
        raise ValueError(f"expected 0 <= num_samples < 2**46, got {num_samples}")


def check_noise(mean: Tensor, seed: Any, generation: Any, generator: Any) -> None:
    """Raise TypeError or ValueError where there is no such noise; tensors' values are not looked at."""
    batch = mean.shape[:-1]
    if generator is not None:
        if not isinstance(generator, torch.Generator):
            got = type(generator).__name__
            raise TypeError(f"expected generator to be a torch.Generator or None, got {got}")
        if seed is not None:
            raise ValueError("expected a seed or a generator, got both")
        if generator.device.type != mean.device.type:
            raise ValueError(f"expected a generator on {mean.device}, got one on {generator.device}")
    if isinstance(seed, Tensor) or (seed is not None and batch):
        check_tensor(
            "seed", seed, _INTEGERS, mean.device, () if not batch and seed.numel() == 1 else (batch,)
        )
    elif seed is not None and not 0 <= as_int("seed", seed) < 1 << 64:
        raise ValueError(f"expected 0 <= seed < 2**64, got {seed}")
    if isinstance(generation, Tensor):
        check_tensor(
            "generation", generation, _INTEGERS, mean.device, () if generation.numel() == 1 else [()]
        )
    elif not 0 <= as_int("generation", generation) < _MAX_GENERATION:
        raise ValueError(f"expected 0 <= generation < 2**38, got {generation}")


def check_bounds(bounds: Any, mean: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return both bounds as tensors of the type that is computed in.

    Raises:
        TypeError: they are no pair of numbers or of tensors of real numbers.
        ValueError: a shape or a device is wrong, or low > high.
    """
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise TypeError(f"expected bounds to be (low, high), got {bounds!r}")
    low, high = bounds
    if isinstance(low, _REAL) and isinstance(high, _REAL) and not low <= high:
        raise ValueError(f"expected bounds with low <= high, got {bounds}")
    return _bound("low", low, mean, compute_type(dtype)), _bound("high", high, mean, compute_type(dtype))


def _bound(name: str, bound: Any, mean: Tensor, dtype: torch.dtype) -> Tensor:
    if isinstance(bound, _REAL):
        return mean.new_full(mean.shape[-1:], float(bound), dtype=dtype)
    shapes = dict.fromkeys([tuple(mean.shape[-1:]), tuple(mean.shape)])
    check_tensor(name, bound, _BOUNDS, mean.device, list(shapes))
    result: Tensor = bound.detach().to(dtype)
    return result
