"""Pictures of a board and the piece to be placed, by `tetris.view.text` and `tetris.view.images`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tetris.game.decisions import place
from tetris.game.features import AfterState
from tetris.game.pieces import PIECES, Shape
from tetris.game.rules import PIECE_LETTERS, Rules
from tetris.view.game_view import HEADROOM, PAGE, TEXT, UNKNOWN, Cells, board_kinds
from tetris.view.images import PALETTE, Picture, board_picture, piece_picture, text_pixels
from tetris.view.text import board_lines

CELL = 16
"""Pixels of a cell's side: video encoders want the sides of a frame to be multiples of it."""

_SLOT = 5 * CELL  # pixels: a piece in a square of 4 x 4 cells, its label above and a margin beside it

Board = npt.NDArray[np.int8]
Falling = tuple[Shape, int, int]
Frame = npt.NDArray[np.uint8]


class Shown(NamedTuple):
    """What a picture of a game shows."""

    board: Board
    """Shape (height, width), 1 for a full cell; row 0 is the bottom."""
    piece: int | Falling
    """Number of the piece to be placed, drawn above the board; or its shape, left column and bottom."""
    following: Sequence[int] = ()
    """Numbers of the pieces that follow, as far as they are known."""
    held: int | None = None
    """Number of the piece in the hold slot."""
    has_hold: bool = False


def text(shown: Shown) -> str:
    """Draw a game in characters, top row first."""
    board, falling = shown.board, _placed(shown.board, shown.piece)
    shape = falling.shape
    title = f"piece {PIECE_LETTERS[shape.piece]}"
    if shown.following:
        title += f", next {' '.join(PIECE_LETTERS[number] for number in shown.following)}"
    if shown.has_hold:
        title += f", hold {'-' if shown.held is None else PIECE_LETTERS[shown.held]}"
    above = max(0, falling.landing_row + shape.height - len(board))
    kinds = board_kinds(_with_rows_above(board, above), len(board), falling=falling)
    lines = board_lines(kinds, len(board))
    return "\n".join([title, *map(str.rstrip, lines)])


def frame(shown: Shown) -> Frame:
    """Draw a game; the held piece and those that follow are on the right of the board.

    Returns:
        Red, green and blue, shape (16 * (height + 4), 16 * width, 3), uint8; wider by 80 for each column of
        pieces on the right.
    """
    cells = _with_rows_above(shown.board, HEADROOM)
    kinds = board_kinds(cells, len(shown.board), falling=_placed(shown.board, shown.piece))
    picture = board_picture(kinds, CELL)
    labelled = [("HOLD", shown.held)] if shown.has_hold else []
    # Each has a label: the first one of a further column would stand beside the held one without.
    for number, piece in enumerate(shown.following, start=1):
        labelled.append((f"NEXT {number}" if number > 1 else "NEXT", piece))
    slots = len(picture) // _SLOT  # in a column
    for first in range(0, len(labelled), slots):
        picture = np.hstack([picture, _side_panel(labelled[first : first + slots], len(picture))])
    return PALETTE[picture]


def _side_panel(labelled: Sequence[tuple[str, int | None]], height: int) -> Picture:
    """Return pieces below each other, each under its label."""
    panel = np.full((height, _SLOT), 3 * PAGE, dtype=np.uint8)
    for slot, (label, piece) in enumerate(labelled):
        top = slot * _SLOT
        pixels = text_pixels(label, 2)
        panel[top + 3 : top + 3 + pixels.shape[0], CELL // 2 : CELL // 2 + pixels.shape[1]][pixels] = 3 * TEXT
        if piece is not None:
            panel[top + CELL : top + _SLOT, CELL // 2 : CELL // 2 + 4 * CELL] = piece_picture(piece, CELL)
    return panel


def _placed(board: Board, piece: int | Falling) -> AfterState:
    """Return the piece where it is drawn."""
    height, width = board.shape
    if isinstance(piece, int | np.integer):
        shape = PIECES[piece][0]
        piece = shape, (width - shape.width) // 2, height
    return place((), *piece, Rules(width, height))


def _with_rows_above(board: Board, count: int) -> Cells:
    above = np.zeros((count, board.shape[1]), dtype=np.uint8)
    return np.concatenate([np.where(board != 0, np.uint8(UNKNOWN), np.uint8(0)), above])
