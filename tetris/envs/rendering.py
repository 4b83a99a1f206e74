"""Draws an environment's observations with `tetris.view.text` and `tetris.view.images`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import logger

from tetris import Rules
from tetris.game.pieces import PIECES
from tetris.game.positions import FullCells, rows_of
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
)
from tetris.view.images import (
    PALETTE,
    Picture,
    board_picture,
    fitted,
    piece_picture,
    text_picture,
)
from tetris.view.text import board_lines

CELL = 16
"""The side of a cell in pixels. Video encoders want the sides of a frame in multiples of 16."""

EMPTY_HOLD = len(PIECES)
"""The observation ``hold`` while no piece is held."""

# The side, in pixels, of a square with a piece: 4 x 4 cells, a label above, a margin beside.
_SLOT = 5 * CELL


class Painter:
    """Draws one or many games from their observations.

    An observation does not contain the colours of the pieces at rest. They are known only if
    the board was also drawn before the piece came to rest. Other full cells are grey.
    """

    def __init__(self, rules: Rules) -> None:
        """Set up; nothing has been drawn yet."""
        self._rules = rules
        # The last observation of each game and the cells that were drawn, by its number.
        self._drawn: dict[int, tuple[Mapping[str, Any], Cells]] = {}

    def draw(
        self, mode: str | None, observations: Iterable[Mapping[str, Any]]
    ) -> tuple[Any, ...] | None:
        """Return a picture of each game from its observation.

        A frame shows the pieces at rest in their colours. To find the colours, this object
        stores the last observation of each game and the cells that it drew.

        Args:
            mode: ``"ansi"``: a picture is a text. ``"rgb_array"``: a picture is a frame in red,
                green and blue, shape (16 * (height + 4), 16 * width, 3), uint8. On the right of
                the board are the held piece and the next pieces; each column of pieces makes
                the frame 80 pixels wider. None: print a warning and return None.
            observations: An observation of each game, in the same order in every call.
        """
        if mode is None:
            logger.warn("You are calling render method without specifying any render mode.")
            return None
        if mode == "ansi":
            return tuple(map(_text, observations))
        frames = []
        for number, observation in enumerate(observations):
            cells = self._next_cells(observation, self._drawn.get(number))
            self._drawn[number] = (observation, cells)
            frames.append(_frame(observation, cells))
        return tuple(frames)

    def _next_cells(
        self, observation: Mapping[str, Any], drawn: tuple[Mapping[str, Any], Cells] | None
    ) -> Cells:
        """Return the piece of each cell of a board, as the piece's number + 1; 0 if empty.

        An observation only says which cells are full. The observation before it says which
        piece came to rest in between, so the new cells belong to that piece. If the two boards
        differ by more than this piece, the result is `UNKNOWN` for all full cells.

        Args:
            observation: The observation to draw.
            drawn: The observation that was drawn last, and its cells: rows from the bottom,
                with some empty rows on top. None: the game was not drawn before.
        """
        unknown = _unknown_cells(observation)
        if drawn is None:
            return unknown
        last, last_cells = drawn
        if np.array_equal(observation["board"], last["board"]):
            return last_cells
        is_full = unknown > 0
        # If a row of garbage rose after the piece came to rest, take it away for now: move the
        # board down by one row.
        has_garbage = observation.get("since_garbage") == 0
        if has_garbage:
            is_full = np.roll(is_full, -1, axis=0)
            is_full[-1] = False
        cells = self._add_piece(_placed_piece(observation, last), last_cells, is_full)
        if cells is None:
            return unknown
        if has_garbage:  # Put the row of garbage back, at the bottom.
            cells = np.vstack([unknown[:1], cells[:-1]])
        return cells

    def _add_piece(self, piece: int, cells: Cells, is_full: FullCells) -> Cells | None:
        """Return the cells of a board after a piece has come to rest.

        A cell is the number of its piece + 1, or 0 if it is empty.

        Args:
            piece: The number of the piece.
            cells: The cells before the piece came to rest.
            is_full: Which cells are full afterwards.

        Returns:
            The cells afterwards; None if no placement of the piece leads to these full cells.
        """
        was_full = cells > 0
        was_removed = was_full & ~is_full
        is_new = is_full & ~was_full
        # All new cells belong to the piece. There are fewer than 4 of them if some are above
        # the board, and more if several pieces came to rest.
        if not was_removed.any() and is_new.sum() <= 4:
            return np.where(is_new, np.uint8(piece + 1), cells)
        # Full rows were removed. The tracker looks for a placement of the piece that leads to
        # this board, and carries it out on its own cells.
        tracker = GameTracker(self._rules)
        tracker.cells = cells
        tracker.rows = rows_of(was_full)
        is_explained = tracker.follow(piece, rows_of(is_full)) is not None
        return tracker.cells if is_explained else None


def _unknown_cells(observation: Mapping[str, Any]) -> Cells:
    """Return the cells of a board as `UNKNOWN` or empty, with `HEADROOM` empty rows on top."""
    board = np.pad(observation["board"], ((0, HEADROOM), (0, 0)))
    cells: Cells = board.astype(np.uint8) * np.uint8(UNKNOWN)
    return cells


def _placed_piece(observation: Mapping[str, Any], last: Mapping[str, Any]) -> int:
    """Return the number of the piece that came to rest after the last observation."""
    held: Any = last.get("hold")
    if held == observation.get("hold"):
        return int(last["piece"])
    # The current piece was swapped with the held piece or, if there was none, the next piece.
    if held == EMPTY_HOLD:
        return int(last["next_pieces"][0])
    return int(held)


def _text(observation: Mapping[str, Any]) -> str:
    """Return an observation as text: a title with the pieces, and then the board.

    In an observation a piece is a number. The board is an array of 0 and 1 with the shape
    (height, width); row 0 is the bottom.
    """
    title = f"piece {PIECE_LETTERS[observation['piece']]}"
    if "next_pieces" in observation:
        letters = " ".join(PIECE_LETTERS[piece] for piece in observation["next_pieces"])
        title += f", next {letters}"
    if "hold" in observation:
        # Number 7, after the seven pieces, means that no piece is held.
        letters = PIECE_LETTERS + "-"
        title += f", hold {letters[observation['hold']]}"
    # The kind of a cell says what to draw there. An observation does not say which piece a cell
    # at rest belongs to, so the kind of these cells is "unknown". The kinds of the cells of the
    # falling piece are FALLING and greater numbers.
    kinds = _kinds(observation, _unknown_cells(observation))
    # Show all rows of the board, and the rows above it up to the top of the falling piece.
    height = len(observation["board"])
    rows_of_piece = np.flatnonzero((kinds >= FALLING).any(axis=1))
    shown_rows = max(rows_of_piece[-1] + 1, height)
    return "\n".join([title, *board_lines(kinds[:shown_rows], height)])


def _frame(observation: Mapping[str, Any], cells: Cells) -> npt.NDArray[np.uint8]:
    """Return the picture of a game in red, green and blue: shape (height, width, 3), uint8.

    On the right of the board is a panel with the held piece and the next pieces, each below its
    label. The panel is as high as the board. If not all pieces fit, there are several panels
    side by side.

    Args:
        observation: An observation of the environment.
        cells: The piece of each cell of the board, as the piece's number + 1; 0 if empty.
    """
    # A picture is an array of indices into a palette. The last line looks up the colours.
    picture = board_picture(_kinds(observation, cells), CELL)
    pieces = []  # The label and the number of each piece in the panels.
    if "hold" in observation:
        pieces.append(("HOLD", observation["hold"]))
    for number, piece in enumerate(observation.get("next_pieces", ()), start=1):
        label = f"NEXT {number}" if number > 1 else "NEXT"
        pieces.append((label, piece))
    # A label and its piece fit in a square with sides of _SLOT pixels.
    pieces_per_panel = len(picture) // _SLOT
    for first in range(0, len(pieces), pieces_per_panel):
        panel = _panel(pieces[first : first + pieces_per_panel])
        picture = np.hstack([picture, fitted(panel, len(picture), _SLOT)])
    return PALETTE[picture]


def _panel(pieces: Sequence[tuple[str, int]]) -> Picture:
    """Return a picture of pieces below each other, from their labels and numbers."""
    images = []
    for label, piece in pieces:
        # `fitted` crops or pads a picture to a height and a width. The letters of the label
        # have 12 pixels.
        images.append(fitted(text_picture(label, 12), CELL, 4 * CELL))
        images.append(piece_picture(piece, CELL))
    left_margin = ((0, 0), (CELL // 2, 0))
    # The palette has three colours for each kind of cell. PAGE is the kind of the background.
    background = 3 * PAGE
    return np.pad(np.vstack(images), left_margin, constant_values=background)


def _kinds(observation: Mapping[str, Any], cells: Cells) -> Cells:
    """Return the kind of each cell, as `board_kinds` defines it, with the current piece added.

    If the observation does not say where the piece is, it waits above the board, in the middle.
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
