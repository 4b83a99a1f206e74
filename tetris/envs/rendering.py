"""Pictures of an environment's observations, by `tetris.view.text` and `tetris.view.images`."""

from collections.abc import Iterable, Mapping
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

        A frame shows the pieces at rest in their colours. These follow from the observation and
        the cells that were drawn last, which are stored for each game.

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
        games = list(observations)
        if not self._drawn:  # This is the first call.
            self._drawn = [(None, np.zeros(0, np.uint8))] * len(games)
        frames = []
        for number, observation in enumerate(games):
            last_observation, last_cells = self._drawn[number]
            cells = self._next_cells(observation, last_observation, last_cells)
            self._drawn[number] = (observation, cells)
            frames.append(_frame(observation, cells))
        return tuple(frames)

    def _next_cells(
        self, observation: Mapping[str, Any], last: Mapping[str, Any] | None, cells: Cells
    ) -> Cells:
        """Return which piece each cell of a board belongs to: its number + 1, or 0 if empty.

        An observation only says which cells are full. Which piece came to rest since the board
        was drawn last follows from the two observations. If it does not, because the board was
        not drawn in between, all full cells are `UNKNOWN`.

        Args:
            observation: What to draw now.
            last: The observation drawn last; None: there is none.
            cells: The cells drawn last, rows from the bottom, with some empty rows on top.
        """
        unknown = _unknown_cells(observation)
        if last is None:
            return unknown
        if np.array_equal(observation["board"], last["board"]):
            return cells
        piece = _placed_piece(observation, last)
        board = unknown > 0
        # If a row of garbage rose after the piece came to rest, remove it for now.
        has_garbage = observation.get("since_garbage") == 0
        if has_garbage:
            board = np.roll(board, -1, axis=0)
            board[-1] = False
        was_full = cells > 0
        tracker = GameTracker(self._rules)
        tracker.cells = cells
        tracker.rows = _stack(was_full)
        if (board >= was_full).all():  # No row was removed: all new cells are the piece's.
            cells = np.where(was_full, cells, board * np.uint8(piece + 1))
        elif tracker.follow(piece, _stack(board)) is not None:
            # The tracker placed the piece where it explains the rows that were removed.
            cells = tracker.cells
        else:  # The piece alone does not explain the difference.
            return unknown
        if has_garbage:  # Add the row of garbage again, at the bottom.
            cells = np.vstack([unknown[:1], cells[:-1]])
        return cells


def _unknown_cells(observation: Mapping[str, Any]) -> Cells:
    """Return the cells of a board whose pieces are not known, with `HEADROOM` rows on top."""
    board = np.pad(observation["board"], ((0, HEADROOM), (0, 0)))
    cells: Cells = board.astype(np.uint8) * np.uint8(UNKNOWN)
    return cells


def _placed_piece(observation: Mapping[str, Any], last: Mapping[str, Any]) -> int:
    """Return the number of the piece that came to rest after the last observation."""
    held: Any = last.get("hold")
    if held == observation.get("hold"):
        return int(last["piece"])
    # The piece was swapped with the held one or, if there was none, with the next one.
    if held == EMPTY_HOLD:
        return int(last["next_pieces"][0])
    return int(held)


def _stack(full: npt.NDArray[np.bool_]) -> Rows:
    """Return the rows of a stack from its full cells."""
    return stack_rows((full << np.arange(full.shape[1])).sum(axis=1).tolist())


def _text(observation: Mapping[str, Any]) -> str:
    """Return the picture of an observation as text: a title with the pieces, and the board.

    An observation has numbers of pieces, and the board as an array of 0 and 1, shape (height,
    width), whose row 0 is the bottom.
    """
    title = f"piece {PIECE_LETTERS[observation['piece']]}"
    if "next_pieces" in observation:
        letters = " ".join(PIECE_LETTERS[piece] for piece in observation["next_pieces"])
        title += f", next {letters}"
    if "hold" in observation:
        # The number after that of the last piece means that no piece is held.
        letters = PIECE_LETTERS + "-"
        title += f", hold {letters[observation['hold']]}"
    # A kind says what to draw in a cell. The cells at rest look the same for all pieces, which
    # an observation does not tell; kinds from FALLING on are those of the falling piece.
    kinds = _kinds(observation, _unknown_cells(observation))
    # Show the rows of the board, and rows above it up to the top of the falling piece.
    height = len(observation["board"])
    rows_of_piece = np.flatnonzero((kinds >= FALLING).any(axis=1))
    shown_rows = max(rows_of_piece[-1] + 1, height)
    return "\n".join([title, *board_lines(kinds[:shown_rows], height)])


def _frame(observation: Mapping[str, Any], cells: Cells) -> npt.NDArray[np.uint8]:
    """Return the picture of a game in red, green and blue: shape (height, width, 3), uint8.

    On the right of the board are panels with the held piece and the next ones, each below its
    label. A panel is as high as the board; pieces that do not fit go into another panel.

    Args:
        observation: An observation of the environment.
        cells: The piece of each cell of the board.
    """
    # Until the last line a picture is an array of indices into a palette.
    picture = board_picture(_kinds(observation, cells), CELL)
    pieces = []
    if "hold" in observation:
        pieces.append(("HOLD", observation["hold"]))
    for number, piece in enumerate(observation.get("next_pieces", ()), start=1):
        label = f"NEXT {number}" if number > 1 else "NEXT"
        pieces.append((label, piece))
    pieces_per_panel = len(picture) // _SLOT  # Heights in pixels.
    for first in range(0, len(pieces), pieces_per_panel):
        images = []
        for label, piece in pieces[first : first + pieces_per_panel]:
            # `fitted` cuts or fills up a picture to a height and a width.
            images.append(fitted(text_picture(label, 12), CELL, 4 * CELL))
            images.append(piece_picture(piece, CELL))
        left_margin = ((0, 0), (CELL // 2, 0))
        background = 3 * PAGE  # The palette has three colours for each kind of cell.
        panel = np.pad(np.vstack(images), left_margin, constant_values=background)
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
