"""What ``sample_normal`` takes, and what it says of anything else."""

from __future__ import annotations

import numbers
import operator
from typing import Any

import torch
from torch import Tensor

from kernels.ops.normal.autograd import compute_type

Bound = float | Tensor
"""One number, or one a dimension."""

_REAL: Any = numbers.Real  # NumPy's scalars among them
DTYPES = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})
_DEVICES = ("cpu", "cuda", "meta")
_MAX_GENERATION = 2**38
MAX_SAMPLES = 2**46


def as_int(name: str, value: Any) -> int:
    """Return an integer of any kind as an int; one that torch.compile traces stays as it is."""
    if type(value) is int:
        return value
    if isinstance(value, torch.SymInt):
        return value  # type: ignore[return-value]
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"expected {name} to be an int, got {type(value).__name__}")
    try:
        return operator.index(value)
    except TypeError:  # a tensor or array of more than one
        raise TypeError(f"expected {name} to be an int, got {value!r}") from None


def check_types(mean: Any, std: Any, generator: Any, dtype: Any) -> None:
    """Raise TypeError where one of the four is of another type than ``sample_normal`` says."""
    for name, value in (("mean", mean), ("std", std)):
        if not isinstance(value, Tensor):
            raise TypeError(f"expected {name} to be a tensor, got {type(value).__name__}")
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"expected generator to be a torch.Generator or None, got {type(generator).__name__}")
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"expected dtype to be a torch.dtype or None, got {dtype!r}")


def check_parameters(mean: Tensor, std: Tensor, num_samples: int, dtype: torch.dtype) -> None:
    """Raise TypeError or ValueError where samples of these cannot be drawn."""
    if mean.dim() == 0 or mean.shape != std.shape:
        raise ValueError(
            f"expected mean and std of one shape (..., d), got {tuple(mean.shape)} and {tuple(std.shape)}"
        )
    if mean.dtype not in DTYPES or mean.dtype is not std.dtype:
        raise TypeError(
            f"expected mean and std of one floating type (float64, float32, float16, bfloat16), "
            f"got {mean.dtype} and {std.dtype}"
        )
    if dtype not in DTYPES:
        raise TypeError(f"expected a dtype out of float64, float32, float16 and bfloat16, got {dtype}")
    if mean.layout != torch.strided or std.layout != torch.strided:
        raise TypeError(f"expected dense mean and std, got {mean.layout} and {std.layout}")
    if mean.device != std.device or mean.device.type not in _DEVICES:
        raise ValueError(
            f"expected mean and std on one device, CPU or CUDA, got {mean.device} and {std.device}"
        )
    if not 0 <= num_samples < MAX_SAMPLES:
        raise ValueError(f"expected 0 <= num_samples < 2**46, got {num_samples}")


def check_seed(mean: Tensor, seed: Any, generator: torch.Generator | None) -> None:
    """Raise TypeError or ValueError where the noise cannot have this seed."""
    if seed is not None and generator is not None:
        raise ValueError("expected a seed or a generator, got both")
    if generator is not None and generator.device.type != mean.device.type:
        raise ValueError(f"expected a generator on {mean.device}, got one on {generator.device}")
    if isinstance(seed, Tensor):
        _check_int64("seed", seed, mean)
        if seed.shape != mean.shape[:-1] and not (mean.dim() == 1 and seed.numel() == 1):
            raise ValueError(
                f"expected a seed of the batch shape {tuple(mean.shape[:-1])}, got {tuple(seed.shape)}"
            )
    elif seed is not None and mean.dim() > 1:
        raise ValueError(
            f"expected seeds as an int64 tensor of the batch shape {tuple(mean.shape[:-1])}, got one int"
        )
    elif seed is not None and not 0 <= as_int("seed", seed) < 1 << 64:
        raise ValueError(f"expected 0 <= seed < 2**64, got {seed}")


def check_generation(mean: Tensor, generation: Any) -> None:
    """Raise TypeError or ValueError where it is none; the value of a tensor is not looked at."""
    if isinstance(generation, Tensor):
        _check_int64("generation", generation, mean)
        if generation.numel() != 1:
            raise ValueError(f"expected a generation of shape (), got {tuple(generation.shape)}")
    elif not 0 <= as_int("generation", generation) < _MAX_GENERATION:
        raise ValueError(f"expected 0 <= generation < 2**38, got {generation}")


def _check_int64(name: str, value: Tensor, mean: Tensor) -> None:
    if value.dtype is not torch.int64:
        raise TypeError(f"expected {name} to be int64, got {value.dtype}")
    if value.device != mean.device:
        raise ValueError(f"expected {name} on {mean.device}, got {value.device}")


def check_bounds(bounds: tuple[Bound, Bound], mean: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return both bounds as tensors of the type that is computed in.

    Raises:
        TypeError: they are no pair of numbers or of tensors of real numbers.
        ValueError: a shape or a device is wrong, or low > high.
    """
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise TypeError(f"expected bounds to be (low, high), got {bounds!r}")
    low, high = (_bound(bound, mean, compute_type(dtype)) for bound in bounds)
    if all(isinstance(bound, _REAL) for bound in bounds) and not bounds[0] <= bounds[1]:
        raise ValueError(f"expected bounds with low <= high, got {bounds}")
    return low, high


def _bound(bound: Bound, mean: Tensor, dtype: torch.dtype) -> Tensor:
    if isinstance(bound, Tensor):
        if bound.is_complex():
            raise TypeError(f"expected a bound of real numbers, got {bound.dtype}")
        if bound.shape not in (mean.shape, mean.shape[-1:]) or bound.device != mean.device:
            raise ValueError(
                f"expected a bound of shape {tuple(mean.shape)} on {mean.device}, "
                f"got {tuple(bound.shape)} on {bound.device}"
            )
        return bound.detach().to(dtype)
    if isinstance(bound, _REAL):
        return mean.new_full(mean.shape[-1:], float(bound), dtype=dtype)
    raise TypeError(f"expected a bound to be a number or a tensor, got {type(bound).__name__}")
