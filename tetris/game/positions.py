"""Reads boards and pieces as users write them: text, arrays and letters."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.support.checks import check_integer
from tetris.game.fumen import is_fumen, read_fumen
from tetris.game.rules import PIECE_LETTERS, Rules

Rows = tuple[int, ...]
Board = str | npt.ArrayLike
"""A drawing, a fumen string, or an array of cells; see `read_board`."""
Boards = Board | Sequence[Board]
"""A board for all games, or a board for each game."""

FullCells = npt.NDArray[np.bool_]
"""Which cells of a board are full: shape (rows, width), row 0 at the bottom."""

_EMPTY = "._0"
_FULL = "X#1" + PIECE_LETTERS


def read_cells(board: Board) -> FullCells:
    """Return which cells of a board are full: shape (rows, width), row 0 at the bottom.

    Args:
        board: A drawing, a fumen string or an array, as `read_board` explains.

    Raises:
        ValueError: If the board is not a valid text or array.
    """
    if isinstance(board, str):
        if not is_fumen(board):
            return _cells_of_drawing(board)
        first_page = read_fumen(board)[0]
        return first_page.cells > 0
    cells = np.asarray(board)
    if cells.ndim != 2 or cells.dtype.kind not in "biuf":
        raise ValueError(
            f"expected a board of numbers with two dimensions, got {cells.dtype} of shape "
            f"{cells.shape}"
        )
    is_full: FullCells = cells != 0
    # A stack stands on the bottom row. If row 0 is empty, the array is probably upside down.
    if is_full.any() and not is_full[0].any():
        raise ValueError(
            "expected row 0 of the array to be the bottom of the stack, got an empty row: "
            "if the top row comes first, turn it over by board[::-1]"
        )
    return is_full


def read_board(board: Board, rules: Rules) -> Rows:
    """Return the rows of a board from the bottom, as integers whose bit c is column c.

    Examples:
        >>> read_board('''
        ...     X...
        ...     XX.X
        ... ''', Rules(4, 8))
        (11, 1)

    Args:
        board: A text or an array. Empty rows on top may be left out. In a drawing, which has
            the top row first, ``.``, ``_`` and ``0`` are empty cells, and ``X``, ``#``, ``1``
            and the letters of the pieces are full cells. Of a fumen string, the first page is
            read. An array has the shape (rows, width), with row 0 at the bottom as in
            observations; 0 and False are empty cells.
        rules: The size of the board.

    Raises:
        ValueError: If the board is none of these, does not fit the rules, or has a full row.
    """
    cells = read_cells(board)
    if cells.shape[1] != rules.width:
        raise ValueError(
            f"expected rows of {rules.width} cells on {rules.board}, got {cells.shape[1]}"
        )
    full_rows = np.flatnonzero(cells.all(axis=1))
    if full_rows.size:
        raise ValueError(
            f"expected no full row, which would have been removed, got row {full_rows[0]} "
            "from the bottom"
        )
    rows = rows_of(cells)
    if len(rows) > rules.height:
        raise ValueError(f"expected a stack that fits on {rules.board}, got {len(rows)} rows")
    return rows


def rows_of(cells: FullCells) -> Rows:
    """Return the rows of a stack from its cells, shape (rows, width), row 0 at the bottom."""
    # A full cell in column c adds 1 << c to its row.
    return stack_rows((cells << np.arange(cells.shape[1])).sum(axis=1).tolist())


def stack_rows(rows: list[int]) -> Rows:
    """Return the rows of a board, as bits, without the empty rows on top."""
    height = len(rows)
    while height and not rows[height - 1]:
        height -= 1
    return tuple(rows[:height])


def cells_of(rows: Rows, width: int, height: int) -> npt.NDArray[np.int64]:
    """Return the cells of a stack as 0 and 1: shape (height, width), row 0 at the bottom.

    Rows above this height are left out.
    """
    numbers = np.zeros(height, dtype=np.int64)
    visible = rows[:height]
    numbers[: len(visible)] = visible
    # Bit c of a row is column c.
    return numbers[:, np.newaxis] >> np.arange(width) & 1


def read_boards(boards: Any, rules: Rules, count: int) -> list[Rows]:
    """Return the stack of each of ``count`` games.

    ``boards`` is one board for all games, or a sequence with a board for each game. A board is
    a text, or an array with two dimensions; see `read_board`.
    """
    if not hasattr(boards, "__len__"):
        raise ValueError(
            f"expected a board, or a board for each of {count} games, got {boards!r}"
        )
    # In a single array the first item is a row, which has one dimension.
    is_single_board = isinstance(boards, str) or (len(boards) and np.ndim(boards[0]) == 1)
    if is_single_board:
        return [read_board(boards, rules)] * count
    stacks = [read_board(board, rules) for board in boards]
    if len(stacks) != count:
        raise ValueError(
            f"expected a board, or a board for each of {count} games, got {len(stacks)}"
        )
    return stacks


def read_piece(piece: str | int) -> int:
    """Return the number of a piece, 0 to 6, from its letter or its number."""
    if not isinstance(piece, str):
        return check_integer("a piece", piece, 0, len(PIECE_LETTERS) - 1)
    letter = piece.strip().upper()
    if len(letter) != 1 or letter not in PIECE_LETTERS:
        raise ValueError(f"expected a piece, a letter of {PIECE_LETTERS}, got {piece!r}")
    return PIECE_LETTERS.index(letter)


def read_pieces(pieces: str | Sequence[str | int], rules: Rules) -> tuple[int, ...]:
    """Return the numbers of pieces from their letters, such as ``"TSZ"``, or their numbers.

    Raises:
        ValueError: If a piece does not belong to the rules, or if there are no pieces.
    """
    numbers = tuple(map(read_piece, pieces))
    if not numbers:
        raise ValueError("expected at least one piece, got none")
    for number in numbers:
        if number not in rules.piece_set:
            raise ValueError(
                f"expected pieces of the source {rules.pieces}, got {PIECE_LETTERS[number]}"
            )
    return numbers


def _cells_of_drawing(text: str) -> FullCells:
    """Return which cells of a drawing are full. The drawing has the top row first."""
    lines = text.split()
    if not lines:
        raise ValueError("expected a board with at least one row, got an empty text")
    for number, line in enumerate(lines, start=1):
        for character in line:
            if character.upper() not in _EMPTY + _FULL:
                raise ValueError(
                    f"expected . for empty and X for full cells, got {character!r} in line "
                    f"{number} of the board"
                )
        if len(line) != len(lines[0]):
            raise ValueError(
                f"expected rows of the same width, got {len(lines[0])} cells in line 1 and "
                f"{len(line)} in line {number}"
            )
    rows_from_bottom = reversed(lines)
    return np.array([[cell not in _EMPTY for cell in line] for line in rows_from_bottom])
