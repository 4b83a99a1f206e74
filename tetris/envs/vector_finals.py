"""The final observations of games that ended in a step with autoreset, as entries of ``infos``.

They are made of observation and info of all games, shape (num_envs, ...), the last one of each that has
ended, and of which games have, ``done``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def final_tensors(
    observation: dict[str, torch.Tensor], info: dict[str, torch.Tensor], done: torch.Tensor
) -> dict[str, Any]:
    """Return final observations for all games, batched; does not wait for the device."""
    infos = {**info, **{f"_{name}": done.clone() for name in info}}
    return {"final_obs": observation, "_final_obs": done, "final_info": infos, "_final_info": done.clone()}


def final_arrays(
    observation: dict[str, torch.Tensor], info: dict[str, torch.Tensor], done: torch.Tensor
) -> dict[str, Any]:
    """Return final observations as Gymnasium's wrappers expect them: nothing, or an array of dictionaries."""
    ended = done.numpy()
    where = np.flatnonzero(ended)
    if not len(where):
        return {}
    shown = np.empty(len(ended), dtype=object)
    last = {name: tensor.numpy()[where] for name, tensor in observation.items()}
    for at, i in enumerate(where.tolist()):
        shown[i] = {name: array[at] for name, array in last.items()}
    infos: dict[str, Any] = {}
    for name, tensor in info.items():
        infos[name] = np.zeros(tensor.shape, dtype=np.int8)
        infos[name][where] = tensor.numpy()[where]
        infos[f"_{name}"] = ended.copy()
    return {"final_obs": shown, "_final_obs": ended, "final_info": infos, "_final_info": ended.copy()}


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy."""
    # NumPy's for the CPU: torch would wake its threads for so few bytes, and wait for them.
    return tensor.clone() if tensor.is_cuda else torch.from_numpy(tensor.numpy().copy())
