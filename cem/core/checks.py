"""Checks of arguments. Their errors say which value was expected and which was passed."""

import math
import os
import sys
import warnings
from collections.abc import Callable
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernels.loader.cuda import CUDA_TORCH_REMEDY

_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
_INSIDE = (f"{Path(__file__).parents[1]}{os.sep}", f"{Path(torch.__file__).parent}{os.sep}")

_SAME = 1e-5  # the largest difference of equal values, relative to the largest one

Seed = int | np.random.Generator | np.random.RandomState | torch.Generator | None
"""A number, or a generator that draws one; None is torch's global generator."""


def check_real(
    name: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
) -> float:
    """Return ``value`` as a float, if it is a finite number in [low, high].

    With ``open_low`` the number must be greater than ``low``. Error messages contain ``name``.

    Raises:
        TypeError: If the value is not a real number, or is a bool.
        ValueError: If the number is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"expected a number for {name}, got {value!r}")
    number = float(value)
    is_above = number > low if open_low else number >= low
    if math.isfinite(number) and is_above and number <= high:
        return number
    # The message lists the conditions, such as "finite and > 0 and <= 1".
    wanted = ["finite"]
    if low > -math.inf:
        sign = ">" if open_low else ">="
        wanted.append(f"{sign} {low:g}")
    if high < math.inf:
        wanted.append(f"<= {high:g}")
    raise ValueError(f"expected {name} {' and '.join(wanted)}, got {value!r}")


def draw_seed(seed: Any) -> Any:
    """Return a seed; if it is a generator, draw a number from it.

    A number of NumPy or torch becomes one of Python, whose arithmetic does not overflow.
    """
    if getattr(seed, "shape", None) == ():
        return seed.item()
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**63 - 1))
    if isinstance(seed, np.random.RandomState):
        return int(seed.randint(2**63 - 1, dtype=np.int64))
    if isinstance(seed, torch.Generator):
        return int(torch.randint(2**63 - 1, (), generator=seed, device=seed.device))
    # None is torch's global generator.
    return int(torch.randint(2**63 - 1, ())) if seed is None else seed


def check_vector(
    name: str,
    value: Any,
    shape: torch.Size | None,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Return a number, sequence, array or tensor as a new contiguous tensor.

    The value is broadcast to ``shape``. If ``shape`` is None, the value keeps its own shape,
    which must be (..., dim) with dim >= 1. ``name`` is the name of the value in error messages.

    Raises:
        ValueError: If the value cannot be broadcast to ``shape``, or ``shape`` is None and the
            value is a single number or empty.
    """
    # The result never shares memory with the caller's value.
    vector = as_real(name, value).to(device=device, dtype=dtype, copy=True)
    if shape is None:
        if vector.dim() == 0 or vector.numel() == 0:
            raise ValueError(
                f"expected {name} of shape (dim,) or (..., dim) with dim >= 1, "
                f"got {tuple(vector.shape)}"
            )
        return vector.contiguous()
    try:
        # `expand` makes a view, in which repeated elements share memory. The clone has its own.
        return vector.expand(shape).clone(memory_format=torch.contiguous_format)
    except RuntimeError:
        got = tuple(vector.shape)
        raise ValueError(f"expected {name} of shape {tuple(shape)}, got {got}") from None


def check_shape(name: str, value: Any, shape: tuple[int, ...]) -> Tensor:
    """Return a value of a shape as a detached real tensor, which may share its memory."""
    tensor = as_real(name, value)
    if tensor.shape != shape:
        raise ValueError(f"expected {name} of shape {shape}, got {tuple(tensor.shape)}")
    return tensor


def as_real(name: str, value: Any) -> Tensor:
    """Return a tensor, array or sequence as a detached real tensor.

    Tensors and arrays keep their device and dtype, but masked arrays and unsigned integers of
    16 bits and more become float64, as a sequence does.
    """
    try:
        first = value[0] if isinstance(value, (list, tuple)) and value else None
        if isinstance(first, Tensor) and (first.numel() > 1 or first.requires_grad):
            # torch takes no list of rows, such as candidates that were asked one by one, and
            # warns of gradients in a list of numbers.
            value = torch.stack([as_real(name, row).double() for row in value])
        # Without a dtype, torch would round the doubles of a list to its default dtype.
        dtype = None if hasattr(value, "dtype") else torch.float64
        tensor = to_tensor(as_torch_takes_it(value), dtype).detach()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        got = type(value).__name__
        raise TypeError(f"expected numbers for {name}, got {got}: {error}") from error
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"expected real numbers for {name}, got {tensor.dtype}")
    # torch has hardly a function of these dtypes.
    return tensor.double() if tensor.dtype in _UNSIGNED else tensor


def to_tensor(value: Any, dtype: torch.dtype | None = None) -> Tensor:
    """Return a tensor as it is, and other values as ``torch.as_tensor`` does by default.

    After ``torch.set_default_device`` this would move tensors and arrays to that device.
    """
    if isinstance(value, Tensor):
        return value
    is_on_gpu = hasattr(value, "__cuda_array_interface__")  # as an array of CuPy
    return torch.as_tensor(value, dtype=dtype, device=None if is_on_gpu else "cpu")


def mixes_rows(together: Tensor, evaluate_first: Callable[[], Tensor]) -> bool:
    """Return whether the values of a row depend on the other rows of the argument.

    Args:
        together: A function's values of n rows, shape (n,) or (n, m).
        evaluate_first: Returns its values of the first row alone, shape (1,) or (1, m). It is
            called again if the values differ: with noise, they change again.
    """
    scale = together.double().abs().nan_to_num(0.0, posinf=0.0).amax(0)
    precision = torch.finfo(together.dtype).eps if together.is_floating_point() else 0.0
    tolerance = max(_SAME, 10 * precision) * scale

    def are_equal(one: Tensor, other: Tensor) -> bool:
        is_near = (one.double() - other.double()).abs() <= tolerance
        is_equal = (one == other) | (one.isnan() & other.isnan())
        return bool((is_near | is_equal).all())

    # The function may return the same memory in every call.
    alone = evaluate_first().clone()
    return not are_equal(alone, together[:1]) and are_equal(alone, evaluate_first())


def as_int64(values: Any) -> Any:
    """Convert a tensor or an array to int64."""
    return values.long() if isinstance(values, Tensor) else values.astype(np.int64)


def as_torch_takes_it(value: Any) -> Any:
    """Give an array the form that torch accepts: native byte order, C order, writable.

    A masked number becomes NaN. A column of a table, such as a pandas Series, becomes an array,
    because torch would read it by its labels, which are arbitrary. Other values are returned
    unchanged.
    """
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    if isinstance(value, np.ma.MaskedArray):
        value = np.ma.filled(value.astype(np.result_type(value, np.float64)), math.nan)
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == object:
        raise TypeError("expected an array of numbers, got one of Python objects")
    return np.require(value, value.dtype.newbyteorder("="), ["C", "W"])


def check_device(device: str | torch.device) -> torch.device:
    """Return a device that exists on this machine; "cuda" becomes the current CUDA device.

    Raises:
        ValueError: If it is not a device, or is a CUDA device that torch does not see.
    """
    try:
        result = torch.device(device)
    except (RuntimeError, TypeError) as error:
        examples = "such as 'cpu' or 'cuda'"
        raise ValueError(f"expected a device {examples}, got {device!r}") from error
    if result.type != "cuda":
        return result
    # For "cuda" without a number the index is None, and there must be at least one GPU.
    index = result.index or 0
    count = torch.cuda.device_count()
    if index >= count:
        available = f"CUDA devices 0 to {count - 1}"
        if not count:
            remedy = "check nvidia-smi" if torch.version.cuda else CUDA_TORCH_REMEDY
            available = f"no CUDA device; {remedy}, or use device 'cpu'"
        raise ValueError(
            "expected a device that torch finds here, "
            f"got {str(result)!r}: torch finds {available}"
        )
    is_current = result.index is None
    if is_current:
        return torch.device("cuda", torch.cuda.current_device())
    return result


def check_distribution(mean: Tensor, std: Tensor) -> None:
    """Check that a mean is finite, and that a standard deviation is finite and not negative."""
    if not mean.isfinite().all():
        raise ValueError(f"expected a finite mean, got {mean.tolist()}")
    if not (std.isfinite() & (std >= 0)).all():
        raise ValueError(f"expected a finite std >= 0, got {std.tolist()}")


def warn(message: str) -> None:
    """Give a RuntimeWarning that names code outside this package.

    Nor does it name torch, whose decorators call functions of this package.
    """
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        level += 1
        frame = frame.f_back
    warnings.warn(message, RuntimeWarning, stacklevel=level)
