"""Pictures of a board and the piece that comes next: as text, and as an RGB array."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tetris.pieces import PIECES, Shape
from tetris.rules import PIECE_LETTERS

CELL = 16
"""Pixels of a cell's side: video encoders want the sides of a frame to be multiples of it."""

Cells = npt.NDArray[np.int8]
Frame = npt.NDArray[np.uint8]

_HEADROOM = max(shape.height for shapes in PIECES for shape in shapes)
_BACKGROUND = (18, 18, 24)
_GRID = (32, 32, 42)
_WALL = (140, 148, 166)
# Colours of the pieces in the order of their numbers: those of the Tetris guideline.
_PIECE_COLOURS = (
    (0, 190, 214),
    (226, 194, 0),
    (160, 60, 200),
    (214, 50, 50),
    (60, 180, 70),
    (50, 90, 220),
    (230, 130, 20),
)


def text(cells: Cells, piece: int) -> str:
    """Draw a board in characters, top row first, under the piece that is to be placed.

    Args:
        cells: Shape (height, width), 1 for a full cell; row 0 is the bottom.
        piece: Number of the piece, 0 to 6.
    """
    width = cells.shape[1]
    shape, left = _waiting(piece, width)
    lines = [
        " " + "".join("[]" if _covers(shape, left, row, column) else "  " for column in range(width))
        for row in reversed(range(shape.height))
    ]
    lines += ["|" + "".join("[]" if cell else " ." for cell in row) + "|" for row in cells[::-1]]
    lines.append("+" + "--" * width + "+")
    return "\n".join([f"piece {PIECE_LETTERS[piece]}", *lines])


def frame(cells: Cells, piece: int) -> Frame:
    """Draw a board, with the piece that is to be placed waiting above it.

    Args:
        cells: Shape (height, width), 1 for a full cell; row 0 is the bottom.
        piece: Number of the piece, 0 to 6.

    Returns:
        Shape (16 * (height + 4), 16 * width, 3), uint8.
    """
    height, width = cells.shape
    colours = np.full((height + _HEADROOM, width, 3), _BACKGROUND, dtype=np.uint8)
    colours[:height] = _GRID
    colours[:height][cells != 0] = _WALL
    shape, left = _waiting(piece, width)
    for row in range(shape.height):
        for column in range(width):
            if _covers(shape, left, row, column):
                colours[height + row, column] = _PIECE_COLOURS[piece]
    picture = colours[::-1].repeat(CELL, axis=0).repeat(CELL, axis=1)
    picture[::CELL] = picture[:, ::CELL] = _BACKGROUND  # a line between cells
    return picture


def _waiting(piece: int, width: int) -> tuple[Shape, int]:
    """The piece as it is first turned, and its left column in the middle of the board."""
    shape = PIECES[piece][0]
    return shape, (width - shape.width) // 2


def _covers(shape: Shape, left: int, row: int, column: int) -> bool:
    return 0 <= column - left < shape.width and bool(shape.rows[row] >> (column - left) & 1)
