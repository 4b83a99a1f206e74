"""Pictures of what an environment observes, by `tetris.view.text` and `tetris.view.images`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import logger

from tetris.game.pieces import PIECES
from tetris.game.rules import PIECE_LETTERS
from tetris.view.game_view import FALLING, HEADROOM, PAGE, TEXT, UNKNOWN, Cells, board_kinds, put
from tetris.view.images import PALETTE, board_picture, piece_picture, text_pixels
from tetris.view.text import board_lines

CELL = 16
"""Pixels of a cell's side: video encoders want the sides of a frame to be multiples of it."""

EMPTY_HOLD = len(PIECES)
"""What the observation ``hold`` is while no piece is held."""

_SLOT = 5 * CELL  # pixels: a piece in a square of 4 x 4 cells, its label above and a margin beside it


def draw(mode: str | None, observations: Iterable[Mapping[str, Any]]) -> tuple[Any, ...] | None:
    """Return a picture of each observation of a game: text (``"ansi"``), a frame (``"rgb_array"``) or None.

    A frame is red, green and blue, shape (16 * (height + 4), 16 * width, 3), uint8. The held piece and those
    that follow are on the right of the board; each column of them makes it wider by 80.
    """
    if mode is None:
        logger.warn("You are calling render method without specifying any render mode.")
        return None
    return tuple(map(_text if mode == "ansi" else _frame, observations))


def _text(observation: Mapping[str, Any]) -> str:
    title = f"piece {PIECE_LETTERS[observation['piece']]}"
    if "next" in observation:
        title += f", next {' '.join(PIECE_LETTERS[piece] for piece in observation['next'])}"
    if "hold" in observation:
        title += f", hold {(*PIECE_LETTERS, '-')[observation['hold']]}"
    kinds, height = _kinds(observation), len(observation["board"])
    top = np.flatnonzero((kinds >= FALLING).any(axis=1))[-1] + 1
    return "\n".join([title, *board_lines(kinds[: max(top, height)], height)])


def _frame(observation: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
    picture = board_picture(_kinds(observation), CELL)
    labelled = [("HOLD", observation["hold"])] if "hold" in observation else []
    # Each has a label: the first one of a further column would stand beside the held one without.
    for number, piece in enumerate(observation.get("next", ()), start=1):
        labelled.append((f"NEXT {number}" if number > 1 else "NEXT", piece))
    slots = len(picture) // _SLOT  # in a column
    for first in range(0, len(labelled), slots):
        panel = np.full((len(picture), _SLOT), 3 * PAGE, dtype=np.uint8)
        for slot, (label, piece) in enumerate(labelled[first : first + slots]):
            top, pixels = slot * _SLOT, text_pixels(label, 2)
            height, width = pixels.shape
            panel[top + 3 : top + 3 + height, CELL // 2 : CELL // 2 + width][pixels] = 3 * TEXT
            if piece != EMPTY_HOLD:
                panel[top + CELL : top + _SLOT, CELL // 2 : -CELL // 2] = piece_picture(piece, CELL)
        picture = np.hstack([picture, panel])
    return PALETTE[picture]


def _kinds(observation: Mapping[str, Any]) -> Cells:
    """Return the kind of each cell, with the piece in the rows above the board unless it falls elsewhere."""
    board, piece = observation["board"], observation["piece"]
    (height, width), shape = board.shape, PIECES[piece][0]
    cells = np.zeros((height + HEADROOM, width), dtype=np.uint8)
    cells[:height][board != 0] = UNKNOWN
    kinds = board_kinds(cells, height)
    if "falling" in observation:
        kinds[observation["falling"] == 1] = FALLING + piece
    else:
        put(kinds, shape, (width - shape.width) // 2, height, FALLING + piece)
    return kinds
