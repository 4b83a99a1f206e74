"""Pictures of a board and the piece to be placed, by `tetris.view.text` and `tetris.view.images`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tetris.features import AfterState
from tetris.game import place
from tetris.pieces import PIECES
from tetris.rules import PIECE_LETTERS, Rules
from tetris.view.game_view import HEADROOM, UNKNOWN, Cells
from tetris.view.images import PALETTE, board_picture
from tetris.view.text import board_lines

CELL = 16
"""Pixels of a cell's side: video encoders want the sides of a frame to be multiples of it."""

Board = npt.NDArray[np.int8]
Frame = npt.NDArray[np.uint8]


def text(board: Board, piece: int) -> str:
    """Draw a board in characters, top row first, under the piece that is to be placed.

    Args:
        board: Shape (height, width), 1 for a full cell; row 0 is the bottom.
        piece: Number of the piece, 0 to 6.
    """
    waiting = _waiting(board, piece)
    lines = board_lines(_with_rows_above(board, waiting.shape.height), len(board), falling=waiting)
    return "\n".join([f"piece {PIECE_LETTERS[piece]}", *lines])


def frame(board: Board, piece: int) -> Frame:
    """Draw a board, with the piece that is to be placed waiting above it.

    Args:
        board: Shape (height, width), 1 for a full cell; row 0 is the bottom.
        piece: Number of the piece, 0 to 6.

    Returns:
        Red, green and blue, shape (16 * (height + 4), 16 * width, 3), uint8.
    """
    cells = _with_rows_above(board, HEADROOM)
    return PALETTE[board_picture(cells, CELL, height=len(board), falling=_waiting(board, piece))]


def _waiting(board: Board, piece: int) -> AfterState:
    """The piece as it comes, on top of the board in the middle."""
    height, width = board.shape
    shape = PIECES[piece][0]
    return place((), shape, (width - shape.width) // 2, height, Rules(width, height))


def _with_rows_above(board: Board, count: int) -> Cells:
    above = np.zeros((count, board.shape[1]), dtype=np.uint8)
    return np.concatenate([np.where(board != 0, np.uint8(UNKNOWN), np.uint8(0)), above])
