"""What the elementwise operators share on the Python side: the checks of their arguments."""

from __future__ import annotations

import torch
from torch import Tensor

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NUMBERS = (*FLOATING, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def check_tensor(x: Tensor, dtypes: tuple[torch.dtype, ...]) -> None:
    """Checks one argument.

    Args:
        x: the argument, of any shape.
        dtypes: the types that the operator computes with.

    Raises:
        TypeError: it is no tensor, or none of these types.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"expected a tensor, got {type(x).__name__}")
    if x.dtype not in dtypes:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(f"expected a tensor of {names}, got {str(x.dtype).removeprefix('torch.')}")


def check_pair(a: Tensor, b: Tensor, dtypes: tuple[torch.dtype, ...]) -> None:
    """Checks two arguments that have to be alike: nothing is broadcast, promoted or moved.

    Args:
        a: the first argument, of any shape.
        b: the second one, of the same shape, dtype and device.
        dtypes: the types that the operator computes with.

    Raises:
        TypeError: one is no tensor or none of these types, or the types differ.
        ValueError: the shapes or the devices differ.
    """
    check_tensor(a, dtypes)
    check_tensor(b, dtypes)
    if a.dtype != b.dtype:
        raise TypeError(f"expected tensors of one dtype, got {a.dtype} and {b.dtype}")
    if a.shape != b.shape:
        raise ValueError(f"expected tensors of one shape, got {tuple(a.shape)} and {tuple(b.shape)}")
    if a.device != b.device:
        raise ValueError(f"expected tensors on one device, got {a.device} and {b.device}")
