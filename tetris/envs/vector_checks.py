"""Checks of what a vector environment is given, and its conversion to tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import AutoresetMode

from kernels.support.names import unknown_name
from tetris.play.devices import NATIVE

OUTPUTS = ("numpy", "torch")


def checked_device(device: str | torch.device) -> torch.device:
    """Return a device that the engine plays on.

    Raises:
        ValueError: If it is neither the CPU nor a GPU that is there.
    """
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise unknown_name("device", str(device), NATIVE) from error
    if chosen.type not in NATIVE:
        raise unknown_name("device", str(device), NATIVE)
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"expected a GPU for device {device}, torch {torch.__version__} finds none")
    return torch.empty(0, device=chosen).device  # with its number: torch's current GPU may later be another


def check_single_only(render_mode: str | None, hold: bool, garbage_every: int | None) -> None:
    """Refuse what single environments alone have.

    Raises:
        ValueError: If something of it is asked for; the message says how to have it.
    """
    if isinstance(render_mode, str) and render_mode == "human":
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


def checked_autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Return what follows when a game ends.

    Raises:
        ValueError: If it is neither an `AutoresetMode` nor the value of one.
    """
    known = [each.value for each in AutoresetMode]
    if not isinstance(mode, AutoresetMode) and not (isinstance(mode, str) and mode in known):
        raise unknown_name("autoreset_mode", str(mode), known)
    return AutoresetMode(mode)


def checked_output(output: str | None, device: torch.device) -> str:
    """Return what arrays are made for the caller: by default NumPy's on the CPU, torch's on a GPU.

    Raises:
        ValueError: If there are no such arrays on the device.
    """
    known = OUTPUTS if device.type == "cpu" else ("torch",)
    if not isinstance(output, str | None) or output not in (None, *known):
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
    try:
        tensor = actions if isinstance(actions, torch.Tensor) else torch.from_numpy(np.array(actions))
    except (TypeError, ValueError) as error:
        raise TypeError(f"expected actions to be integers, got {actions!r}") from error
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


def is_seed(seed: Any) -> bool:
    """Return whether a seed has a type that ``reset`` takes: an int, a sequence or an array of ints, None."""
    if isinstance(seed, np.ndarray):
        return seed.ndim == 1 and seed.dtype.kind in "iuO"
    return isinstance(seed, int | np.integer | Sequence | None)


def checked_mask(mask: Any, num_envs: int) -> torch.Tensor:
    """Return a mask of games.

    Raises:
        TypeError: If it is no array.
        ValueError: If it does not hold a bool for every game.
    """
    if not isinstance(mask, (np.ndarray, torch.Tensor)):
        raise TypeError(f"expected reset_mask to be an array or a tensor, got {mask!r}")
    if isinstance(mask, np.ndarray) and mask.dtype != np.bool_:
        raise ValueError(f"expected reset_mask to hold bools of shape ({num_envs},), got {mask.dtype}")
    tensor = torch.as_tensor(mask.copy() if isinstance(mask, np.ndarray) else mask)  # no negative strides
    if tensor.dtype != torch.bool or tensor.shape != (num_envs,):
        got = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
        raise ValueError(f"expected reset_mask to hold bools of shape ({num_envs},), got {got}")
    return tensor
