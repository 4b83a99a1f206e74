"""How an action names a placement: ``orientation * width + column``, the same on any board of a width."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tetris.game.pieces import PIECES, Shape

MAX_ORIENTATIONS = max(map(len, PIECES))


def action_count(width: int) -> int:
    """Return the number of actions on a board of this width."""
    return MAX_ORIENTATIONS * width


def placement(action: int, piece: int, width: int) -> tuple[Shape, int]:
    """Return the shape and the column of its left edge that an action stands for.

    The placements of a piece have one action each, those of `action_mask`. Any other action stands for one of
    them, too: orientations repeat, and a piece that would stick out on the right stands at the right wall.
    """
    orientation, column = divmod(action, width)
    shape = PIECES[piece][orientation % len(PIECES[piece])]
    return shape, min(column, width - shape.width)


def action_mask(piece: int, width: int) -> npt.NDArray[np.int8]:
    """Return 1 for each action that is a placement of its own, else 0: a new array, shape (4 * width,), int8.

    Examples:
        >>> action_mask(1, 4)  # O, two columns wide, has one orientation
        array([1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], dtype=int8)
    """
    return np.array(_mask(piece, width))


@lru_cache
def _mask(piece: int, width: int) -> npt.NDArray[np.int8]:
    mask = np.zeros(action_count(width), dtype=np.int8)
    for action in range(len(mask)):
        shape, column = placement(action, piece, width)
        mask[shape.orientation * width + column] = 1
    return mask
