"""Pictures of an environment's observations, by `tetris.view.text` and `tetris.view.images`."""

from collections.abc import Iterable, Mapping
from itertools import chain, repeat, starmap
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import logger

from tetris import Rules
from tetris.game.decisions import Rows
from tetris.game.pieces import PIECES
from tetris.game.rules import PIECE_LETTERS
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
"""The observation ``hold`` while no piece is held."""

# A piece in a square of 4 x 4 cells has its label above and a margin beside it.
_SLOT = 5 * CELL


class Painter:
    """Draws one or many games from their observations.

    A cell has its piece's colour if the board was also drawn before the piece came; otherwise
    it is grey.
    """

    def __init__(self, rules: Rules) -> None:
        """Set up; nothing has been drawn yet."""
        self._rules = rules
        self._drawn: list[tuple[Mapping[str, Any] | None, Cells]] = []

    def draw(
        self, mode: str | None, observations: Iterable[Mapping[str, Any]]
    ) -> tuple[Any, ...] | None:
        """Return a picture of each game from its observation.

        Args:
            mode: ``"ansi"``: a picture is a text. ``"rgb_array"``: it is a frame in red, green
                and blue, shape (16 * (height + 4), 16 * width, 3), uint8. The held piece and
                the next ones are on the right of the board; each column of them makes the frame
                wider by 80. None: print a warning and return None.
            observations: An observation of each game, in the same order in every call.
        """
        if mode is None:
            logger.warn("You are calling render method without specifying any render mode.")
            return None
        if mode == "ansi":
            return tuple(map(_text, observations))
        # At first nothing was drawn before.
        previous = chain(self._drawn, repeat((None, np.zeros(0, np.uint8))))
        self._drawn = [
            (observation, self._next_cells(observation, last, cells))
            for observation, (last, cells) in zip(observations, previous, strict=False)
        ]
        return tuple(starmap(_frame, self._drawn))

    def _next_cells(
        self, observation: Mapping[str, Any], last: Mapping[str, Any] | None, cells: Cells
    ) -> Cells:
        """Return the piece of each cell of a board, as the cells of `tetris.view.game_view`.

        An observation only says which cells are full. Which piece came to rest since the board
        was drawn last follows from the two observations. If it does not, because the board was
        not drawn in between, all full cells are `UNKNOWN`.

        Args:
            observation: What to draw now.
            last: The observation drawn last; None: there is none.
            cells: The cells drawn last.
        """
        board = np.pad(observation["board"], ((0, HEADROOM), (0, 0)))
        unknown: Cells = board.astype(np.uint8) * np.uint8(UNKNOWN)
        if last is None:
            return unknown
        if np.array_equal(observation["board"], last["board"]):
            return cells
        held = last.get("hold")
        piece = last["piece"]
        if held != observation.get("hold"):  # The piece was swapped before it was placed.
            piece = last["next_pieces"][0] if held == EMPTY_HOLD else held
        has_risen = observation.get("since_garbage") == 0
        if has_risen:  # Take the garbage row away that rose after the piece came to rest.
            board = np.roll(board, -1, axis=0)
            board[-1] = 0
        tracker = GameTracker(self._rules)
        tracker.cells = cells
        tracker.rows = _stack(cells > 0)
        if (board >= (cells > 0)).all():  # No row was removed: the new cells are the piece's.
            cells = np.where(cells > 0, cells, board.astype(np.uint8) * np.uint8(piece + 1))
        elif tracker.follow(piece, _stack(board > 0)) is not None:
            cells = tracker.cells
        else:
            return unknown
        if has_risen:
            cells = np.vstack([unknown[:1], cells[:-1]])  # The garbage row is the lowest.
        return cells


def _stack(full: npt.NDArray[np.bool_]) -> Rows:
    """Return the rows of a stack from its full cells."""
    return stack_rows((full << np.arange(full.shape[1])).sum(axis=1).tolist())


def _text(observation: Mapping[str, Any]) -> str:
    """Return the picture of an observation as plain text: a title, and the board below it."""
    title = f"piece {PIECE_LETTERS[observation['piece']]}"
    if "next_pieces" in observation:
        letters = " ".join(PIECE_LETTERS[piece] for piece in observation["next_pieces"])
        title += f", next {letters}"
    if "hold" in observation:
        title += f", hold {(PIECE_LETTERS + '-')[observation['hold']]}"  # The last is no piece.
    board = np.pad(observation["board"], ((0, HEADROOM), (0, 0)))
    # The text is the same for all pieces at rest.
    kinds = _kinds(observation, board.astype(np.uint8) * np.uint8(UNKNOWN))
    height = len(observation["board"])
    top_of_piece = np.flatnonzero((kinds >= FALLING).any(axis=1))[-1] + 1
    return "\n".join([title, *board_lines(kinds[: max(top_of_piece, height)], height)])


def _frame(observation: Mapping[str, Any], cells: Cells) -> npt.NDArray[np.uint8]:
    """Return the picture of an observation: red, green and blue, shape (height, width, 3).

    Beside the board are the held piece and the next ones under their labels.
    """
    picture = board_picture(_kinds(observation, cells), CELL)
    pieces = []
    if "hold" in observation:
        pieces.append(("HOLD", observation["hold"]))
    for number, piece in enumerate(observation.get("next_pieces", ()), start=1):
        label = f"NEXT {number}" if number > 1 else "NEXT"
        pieces.append((label, piece))
    slots = len(picture) // _SLOT  # The pieces that a column has room for.
    for first in range(0, len(pieces), slots):  # Each turn of the loop adds a column.
        column = []
        for label, piece in pieces[first : first + slots]:
            column += [
                fitted(text_picture(label, 12), CELL, 4 * CELL),
                piece_picture(piece, CELL),
            ]
        panel = np.pad(np.vstack(column), ((0, 0), (CELL // 2, 0)), constant_values=3 * PAGE)
        picture = np.hstack([picture, fitted(panel, len(picture), _SLOT)])
    return PALETTE[picture]


def _kinds(observation: Mapping[str, Any], cells: Cells) -> Cells:
    """Return the kind of each cell of an observation, see `board_kinds`, with the piece.

    A piece that an observation does not show on the board waits above it, in the middle.
    """
    piece = observation["piece"]
    height, width = observation["board"].shape
    kinds = board_kinds(cells, height)
    if "falling" in observation:
        kinds[observation["falling"] == 1] = FALLING + piece
    else:
        shape = PIECES[piece][0]
        put(kinds, shape, (width - shape.width) // 2, height, FALLING + piece)
    return kinds
