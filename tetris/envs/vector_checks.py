"""What a vector environment is given, checked and as tensors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from kernels.support.names import unknown_name
from tetris.play.devices import NATIVE, check_gpu

OUTPUTS = ("numpy", "torch")


def check_single_only(render_mode: str | None, hold: bool, garbage_every: int | None) -> None:
    """Raise ValueError, with the way to have it, for what single environments alone have."""
    if render_mode == "human":
        raise ValueError(
            'expected render_mode "ansi" or "rgb_array" of many games, got "human": a window shows one, '
            'gymnasium.make(..., render_mode="human")'
        )
    for name, value, default in (("hold", hold, False), ("garbage_every", garbage_every, None)):
        if value is not default:
            raise ValueError(
                f"expected no {name}, got {value!r}: the engine has none; step single environments, "
                'gymnasium.make_vec(..., vectorization_mode="sync")'
            )


def checked_device(device: str | torch.device) -> torch.device:
    """Return a device that an engine plays on."""
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise unknown_name("device", str(device), NATIVE) from error
    if chosen.type not in NATIVE:
        raise unknown_name("device", str(device), NATIVE)
    if chosen.type == "cuda":
        check_gpu(f"device {device}", "device cpu")
    return torch.empty(0, device=chosen).device  # with its number: torch's current GPU may later be another


def checked_output(output: str | None, device: torch.device) -> str:
    """Return what arrays are made for the caller: by default NumPy's on the CPU, torch's on a GPU."""
    known = OUTPUTS if device.type == "cpu" else ("torch",)
    if output is not None and output not in known:
        raise ValueError(f"expected output on {device} to be {' or '.join(known)}, got {output!r}")
    return output or known[0]


def checked_actions(
    actions: npt.ArrayLike | torch.Tensor, num_envs: int, count: int, device: torch.device
) -> torch.Tensor:
    """Return the actions of all games, int64 on the device; their values are looked at on the CPU alone.

    Raises:
        TypeError: If they are no integers.
        ValueError: If their shape is wrong, or one is not from 0 to ``count - 1``.
    """
    tensor = _tensor_of(actions)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"expected actions to be integers, got {tensor.dtype}")
    if tensor.shape != (num_envs,):
        raise ValueError(f"expected actions of shape ({num_envs},), got {tuple(tensor.shape)}")
    number = tensor.to(device, torch.int64).contiguous()
    if device.type == "cpu":
        least, most = map(int, torch.aminmax(number))
        if least < 0 or most >= count:
            raise ValueError(f"expected actions from 0 to {count - 1}, got {least if least < 0 else most}")
    return number


def checked_mask(mask: npt.ArrayLike | torch.Tensor, num_envs: int, device: torch.device) -> torch.Tensor:
    """Return a mask of games on the device.

    Raises:
        ValueError: If it does not hold a bool for every game.
    """
    tensor = _tensor_of(mask)
    if tensor.dtype != torch.bool or tensor.shape != (num_envs,):
        got = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
        raise ValueError(f"expected reset_mask to hold bools of shape ({num_envs},), got {got}")
    return tensor.to(device)


def _tensor_of(values: npt.ArrayLike | torch.Tensor) -> torch.Tensor:
    # NumPy's copy: torch takes no negative strides.
    return values if isinstance(values, torch.Tensor) else torch.from_numpy(np.array(values))
