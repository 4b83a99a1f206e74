"""Pictures of what an environment observes, by `tetris.view.text` and `tetris.view.images`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, repeat, starmap
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import logger

from tetris.game.decisions import Rows
from tetris.game.pieces import PIECES
from tetris.game.rules import PIECE_LETTERS, Rules
from tetris.view.game_view import (
    FALLING,
    HEADROOM,
    PAGE,
    UNKNOWN,
    Cells,
    GameTracker,
    board_kinds,
    put,
    stack_rows,
)
from tetris.view.images import PALETTE, board_picture, fitted, piece_picture, text_picture
from tetris.view.text import board_lines

CELL = 16
"""Pixels of a cell's side: video encoders want the sides of a frame to be multiples of it."""

EMPTY_HOLD = len(PIECES)
"""What the observation ``hold`` is while no piece is held."""

_SLOT = 5 * CELL  # pixels: a piece in a square of 4 x 4 cells, its label above and a margin beside it


class Painter:
    """Draws games by what is observed of them, one or many.

    A cell has its piece's colour where the board before the piece was drawn, too; otherwise it is grey.
    """

    def __init__(self, rules: Rules) -> None:
        """Set up; nothing has been drawn yet."""
        self._rules = rules
        self._drawn: list[tuple[Mapping[str, Any] | None, Cells]] = []

    def draw(self, mode: str | None, observations: Iterable[Mapping[str, Any]]) -> tuple[Any, ...] | None:
        """Return a picture of each game: text (``"ansi"``), a frame (``"rgb_array"``) or None.

        A frame is red, green and blue, shape (16 * (height + 4), 16 * width, 3), uint8. The held piece and
        those that follow are on the right of the board; each column of them makes it wider by 80.
        """
        if mode is None:
            logger.warn("You are calling render method without specifying any render mode.")
            return None
        if mode == "ansi":
            return tuple(map(_text, observations))
        before = chain(self._drawn, repeat((None, np.zeros(0, np.uint8))))
        self._drawn = [
            (now, self._cells(now, *last)) for now, last in zip(observations, before, strict=False)
        ]
        return tuple(starmap(_frame, self._drawn))

    def _cells(self, now: Mapping[str, Any], last: Mapping[str, Any] | None, cells: Cells) -> Cells:
        """Return the pieces of the cells of a board, from those of the board that was drawn last."""
        board = np.pad(now["board"], ((0, HEADROOM), (0, 0)))
        unknown: Cells = board.astype(np.uint8) * np.uint8(UNKNOWN)
        if last is None or np.array_equal(now["board"], last["board"]):
            return unknown if last is None else cells
        held, piece = last.get("hold"), last["piece"]
        if held != now.get("hold"):
            piece = last["next_pieces"][0] if held == EMPTY_HOLD else held
        risen = now.get("since_garbage") == 0
        if risen:
            board = np.roll(board, -1, axis=0)
            board[-1] = 0
        tracker = GameTracker(self._rules)
        tracker.cells, tracker.rows = cells, _rows(cells > 0)
        if (board >= (cells > 0)).all():
            cells = np.where(cells > 0, cells, board.astype(np.uint8) * np.uint8(piece + 1))
        elif tracker.follow(piece, _rows(board > 0)) is not None:
            cells = tracker.cells
        else:
            return unknown
        if risen:
            cells = np.vstack([unknown[:1], cells[:-1]])
        return cells


def _rows(full: npt.NDArray[np.bool_]) -> Rows:
    return stack_rows((full << np.arange(full.shape[1])).sum(axis=1).tolist())


def _text(observation: Mapping[str, Any]) -> str:
    title = f"piece {PIECE_LETTERS[observation['piece']]}"
    if "next_pieces" in observation:
        title += f", next {' '.join(PIECE_LETTERS[piece] for piece in observation['next_pieces'])}"
    if "hold" in observation:
        title += f", hold {(*PIECE_LETTERS, '-')[observation['hold']]}"
    board = np.pad(observation["board"], ((0, HEADROOM), (0, 0)))
    kinds, height = _kinds(observation, board.astype(np.uint8) * np.uint8(UNKNOWN)), len(observation["board"])
    top = np.flatnonzero((kinds >= FALLING).any(axis=1))[-1] + 1
    return "\n".join([title, *board_lines(kinds[: max(top, height)], height)])


def _frame(observation: Mapping[str, Any], cells: Cells) -> npt.NDArray[np.uint8]:
    picture = board_picture(_kinds(observation, cells), CELL)
    labelled = [("HOLD", observation["hold"])] if "hold" in observation else []
    # Each has a label: the first one of a further column would stand beside the held one without.
    for number, piece in enumerate(observation.get("next_pieces", ()), start=1):
        labelled.append((f"NEXT {number}" if number > 1 else "NEXT", piece))
    slots = len(picture) // _SLOT  # in a column
    for first in range(0, len(labelled), slots):
        shown = [
            np.vstack([fitted(text_picture(label, 12), CELL, 4 * CELL), piece_picture(piece, CELL)])
            for label, piece in labelled[first : first + slots]
        ]
        panel = np.pad(np.vstack(shown), ((0, 0), (CELL // 2, 0)), constant_values=3 * PAGE)
        picture = np.hstack([picture, fitted(panel, len(picture), _SLOT)])
    return PALETTE[picture]


def _kinds(observation: Mapping[str, Any], cells: Cells) -> Cells:
    """Return the kind of each cell, with the piece in the rows above the board unless it falls elsewhere."""
    piece, (height, width) = observation["piece"], observation["board"].shape
    kinds, shape = board_kinds(cells, height), PIECES[piece][0]
    if "falling" in observation:
        kinds[observation["falling"] == 1] = FALLING + piece
    else:
        put(kinds, shape, (width - shape.width) // 2, height, FALLING + piece)
    return kinds
