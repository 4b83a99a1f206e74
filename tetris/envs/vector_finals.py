"""The final observations of games that ended in a step with autoreset, as entries of ``infos``.

The next game begins with the piece that the ended one showed last, so piece and mask are those of the step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def final_tensors(
    board: torch.Tensor, piece: torch.Tensor, mask: torch.Tensor, done: torch.Tensor
) -> dict[str, Any]:
    """Return final observations for all games, batched; does not wait for the device.

    Args:
        board: Shape (num_envs, height, width), int8: the last board of each game.
        piece: Shape (num_envs,), int64: the pieces of the step's observation.
        mask: Shape (num_envs, actions), int8: its masks.
        done: Shape (num_envs,), bool: which games have ended.
    """
    # NumPy's copy for the CPU: torch would wake its threads for so few bytes, and wait for them.
    last_mask = mask.clone() if mask.is_cuda else torch.from_numpy(mask.numpy().copy())
    return {
        "final_obs": {"board": board, "piece": piece.clone()},
        "_final_obs": done,
        "final_info": {"action_mask": last_mask, "_action_mask": done.clone()},
        "_final_info": done.clone(),
    }


def final_arrays(
    board: torch.Tensor, piece: torch.Tensor, mask: torch.Tensor, done: torch.Tensor
) -> dict[str, Any]:
    """Return final observations as Gymnasium's wrappers expect them: nothing, or an array of dictionaries.

    Args:
        board: See `final_tensors`, on the CPU.
        piece: See `final_tensors`.
        mask: See `final_tensors`.
        done: See `final_tensors`.
    """
    ended = done.numpy()
    where = np.flatnonzero(ended)
    if not len(where):
        return {}
    shown = np.empty(len(ended), dtype=object)
    for i, last_board, last_piece in zip(
        where.tolist(), board.numpy()[where], piece.numpy()[where], strict=True
    ):
        shown[i] = {"board": last_board, "piece": last_piece}
    last_mask = np.zeros(mask.shape, dtype=np.int8)
    last_mask[where] = mask.numpy()[where]
    return {
        "final_obs": shown,
        "_final_obs": ended,
        "final_info": {"action_mask": last_mask, "_action_mask": ended.copy()},
        "_final_info": ended.copy(),
    }
