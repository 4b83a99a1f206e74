"""The fumen format, version 115, in which solvers and editors of Tetris exchange boards.

A fumen is a sequence of pages. A page is a field of 10 x 23 cells and a piece on it. Before the
next page the piece comes to rest, and full rows are removed. The data are numbers in base 64,
the lowest digit first. A page has these numbers:

- The field, as the difference of each cell from the page before. The cells are read from the
  top row down to a row of garbage below the field. Each run of equal differences is the number
  (difference + 8) * 240 + length - 1, in two digits. If no cell differs, one digit follows: how
  many further pages have the same field.
- The number color + 8 * (rotation + 4 * (position + 240 * flags)), in three digits. The color
  is the number of the piece in the format; 0 means that there is no piece.
- If a flag says so, a comment: its length in two digits, and five digits for each four
  characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tetris.game.pieces import PIECES, Shape
from tetris.game.rules import PIECE_LETTERS

WIDTH = 10
HEIGHT = 23
"""The size of the field."""

GRAY = 8
"""The value of a full cell that belongs to no piece."""

Cells = npt.NDArray[np.int64]

_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BASE = len(_DIGITS)
_PREFIX = "v115@"
_VERSION = re.compile(r"\b[dmv](\d{3})@")  # The letters are of three modes of the editor.
_NO_DIFFERENCE = 8
_CELLS = WIDTH * (HEIGHT + 1)  # With the row of garbage.
_COLORS = " ILOZTJS"  # The index of a piece's letter is its number in the format.
_REVERSE, _RIGHT, _SPAWN, _LEFT = range(4)
# The flags of a page, as bits.
_RISE, _MIRROR, _COLORS_SET, _COMMENT, _UNLOCKED = (1 << bit for bit in range(5))
# The cells of a piece around its centre, in the rotation in which it appears.
_CENTERED = {
    "I": ((-1, 0), (0, 0), (1, 0), (2, 0)),
    "L": ((-1, 0), (0, 0), (1, 0), (1, 1)),
    "O": ((0, 0), (1, 0), (0, 1), (1, 1)),
    "Z": ((-1, 1), (0, 1), (0, 0), (1, 0)),
    "T": ((-1, 0), (0, 0), (1, 0), (0, 1)),
    "J": ((-1, 0), (0, 0), (1, 0), (-1, 1)),
    "S": ((-1, 0), (0, 0), (0, 1), (1, 1)),
}
# The position that the format writes is the centre or, in these rotations, the centre - (x, y).
_OFFSETS = {
    ("O", _LEFT): (1, -1),
    ("O", _REVERSE): (1, 0),
    ("O", _SPAWN): (0, -1),
    ("I", _REVERSE): (1, 0),
    ("I", _LEFT): (0, -1),
    ("S", _SPAWN): (0, -1),
    ("S", _RIGHT): (-1, 0),
    ("Z", _SPAWN): (0, -1),
    ("Z", _LEFT): (1, 0),
}


class _Rotation(NamedTuple):
    """A piece in one rotation. Its edges are relative to its position in the format."""

    shape: Shape
    left: int
    bottom: int


@dataclass(frozen=True, eq=False)
class FumenPage:
    """A field with a piece, which comes to rest before the next page.

    Attributes:
        cells: The field, shape (23, 10), row 0 at the bottom. A cell is 0 if it is empty, 8 if
            it is gray, and otherwise the number of its piece in the format.
        shape: The piece in its orientation; None if no piece comes to rest.
        column: Column of the left edge of the piece.
        row: Row of the bottom of the piece.
    """

    cells: Cells
    shape: Shape | None = None
    column: int = 0
    row: int = 0


class _PageCode(NamedTuple):
    """What three digits say of a page: its piece, where the piece is, and flags."""

    color: int  # The number of the piece in the format; 0: the page has no piece.
    rotation: int
    position: int
    flags: int

    @classmethod
    def read(cls, digits: list[int]) -> _PageCode:
        """Remove the digits from the end of a list, as `_read` does."""
        number, color = divmod(_read(digits, 3), 8)
        number, rotation = divmod(number, 4)
        flags, position = divmod(number, _CELLS)
        return cls(color, rotation, position, flags)

    def write(self, digits: list[int]) -> None:
        """Append the digits to a list."""
        number = self.position + _CELLS * self.flags
        number = self.rotation + 4 * number
        _write(digits, self.color + 8 * number, 3)


def is_fumen(text: str) -> bool:
    """Return whether a text, such as the address of an editor, has a fumen of any version."""
    return _VERSION.search(text) is not None


def color_of(piece: int) -> int:
    """Return the number of a piece, 0 to 6, in the format."""
    return _COLORS.index(PIECE_LETTERS[piece])


@cache
def _rotations(piece: int) -> dict[int, _Rotation]:
    """Return the four rotations of a piece, by their number in a fumen.

    A fumen turns the cells of a piece, (x, y) with y upwards, around its centre. `PIECES` has
    the piece in up to four orientations, which are called shapes. The shape of a rotation is
    the one with the same cells.
    """
    cells = _CENTERED[PIECE_LETTERS[piece]]
    turned = {
        _SPAWN: cells,
        _RIGHT: [(y, -x) for x, y in cells],
        _REVERSE: [(-x, -y) for x, y in cells],
        _LEFT: [(-y, x) for x, y in cells],
    }
    rotations = {}
    for rotation, turned_cells in turned.items():
        left = min(x for x, _ in turned_cells)
        bottom = min(y for _, y in turned_cells)
        # The cells relative to the edges, as a shape has them.
        box_cells = {(x - left, y - bottom) for x, y in turned_cells}
        shape = next(shape for shape in PIECES[piece] if set(shape.cells) == box_cells)
        # The left and bottom edges are relative to the position that a fumen writes. This is
        # the centre or, in some rotations, the centre - (dx, dy).
        dx, dy = _OFFSETS.get((PIECE_LETTERS[piece], rotation), (0, 0))
        rotations[rotation] = _Rotation(shape, left + dx, bottom + dy)
    return rotations


def read_fumen(text: str) -> list[FumenPage]:
    """Return the pages of a fumen.

    Raises:
        ValueError: If the text is damaged or of another version.
    """
    version = _VERSION.search(text)
    data = ""
    if version is not None:
        if version[1] != "115":
            raise ValueError(
                f"expected a fumen of version v115, got v{version[1]}: an editor saves it as "
                "v115"
            )
        # Fumens have "?" for line breaks.
        data = re.sub(r"[?\s]", "", text[version.end() :])
    wrong_characters = set(data) - set(_DIGITS)
    if not data or wrong_characters:
        raise ValueError(
            f"expected a fumen, {_PREFIX} and letters, digits, + or /, got {text[:20]!r}"
        )
    digits = [_DIGITS.index(character) for character in data]
    try:
        return list(_pages(digits[::-1]))
    except IndexError as error:  # A digit is missing, or a piece is outside the field.
        raise ValueError(f"expected a whole fumen, got a damaged one: {text[:20]!r}") from error


def _read(digits: list[int], count: int) -> int:
    """Remove digits from the end of a list, the lowest first, and return their number."""
    return sum(digits.pop() * _BASE**place for place in range(count))


def _pages(digits: list[int]) -> Iterator[FumenPage]:
    """Yield the pages of a fumen.

    A page is stored as the difference between its field, which is a board, and the field after
    the page before. If no cell differs, a digit says how many of the next pages do not differ
    either. Those pages store no difference.

    Args:
        digits: The digits of the fumen in reverse order. `_read` removes digits from the end of
            the list, and returns the number that they form.
    """
    field = np.zeros((HEIGHT + 1, WIDTH), dtype=np.int64)  # Row 0 is a row of garbage.
    unchanged_pages = 0  # How many of the next pages store no difference.
    while digits:
        if unchanged_pages:
            unchanged_pages -= 1
        else:
            difference = _read_difference(digits)
            field = field + difference
            if not difference.any():
                unchanged_pages = _read(digits, 1)
        code = _PageCode.read(digits)
        if code.flags & _COMMENT:
            _skip_comment(digits)
        page = FumenPage(field[1:].copy())
        is_locked = not code.flags & _UNLOCKED  # Whether the piece of this page comes to rest.
        if code.color and is_locked:
            page = _with_piece(page, code)
        yield page
        if is_locked:
            field = _next_field(field, page, code.flags)


def _skip_comment(digits: list[int]) -> None:
    """Remove a comment: its length, and five digits for every four characters."""
    length = _read(digits, 2)
    groups_of_four = -(-length // 4)  # Rounded up.
    _read(digits, 5 * groups_of_four)


def _read_difference(digits: list[int]) -> Cells:
    """Return the differences of all cells, shape (24, 10), row 0 at the bottom."""
    differences: list[int] = []
    while len(differences) < _CELLS:  # Read a run of equal differences.
        # Its number is (difference + _NO_DIFFERENCE) * _CELLS + length - 1.
        value, length_minus_1 = divmod(_read(digits, 2), _CELLS)
        differences += [value - _NO_DIFFERENCE] * (length_minus_1 + 1)
    from_top = np.array(differences[:_CELLS], dtype=np.int64)
    return from_top.reshape(-1, WIDTH)[::-1]


def _with_piece(page: FumenPage, code: _PageCode) -> FumenPage:
    """Return a page with a piece; IndexError if the piece is not inside the field."""
    rows_from_top, x = divmod(code.position, WIDTH)
    piece = PIECE_LETTERS.index(_COLORS[code.color])
    shape, left, bottom = _rotations(piece)[code.rotation]
    # The edges of the piece are relative to its position.
    column = x + left
    row = HEIGHT - 1 - rows_from_top + bottom
    if not (0 <= column <= WIDTH - shape.width and 0 <= row <= HEIGHT - shape.height):
        raise IndexError("expected a piece inside the field")
    return FumenPage(page.cells, shape, column, row)


def _next_field(field: Cells, page: FumenPage, flags: int) -> Cells:
    """Return the field after a page, with its row of garbage as row 0.

    After the piece has come to rest, the flag `_RISE` lifts the field, so that the row of
    garbage becomes its lowest row. The flag `_MIRROR` exchanges left and right.
    """
    garbage = field[:1]
    cells = after_page(page)
    if flags & _RISE:
        cells = np.concatenate([garbage, cells[:-1]])
        garbage = np.zeros_like(garbage)
    if flags & _MIRROR:
        cells = cells[:, ::-1]
    return np.concatenate([garbage, cells])


def after_page(page: FumenPage) -> Cells:
    """Return the field after the piece of a page has come to rest, without full rows."""
    cells = page.cells.copy()
    if page.shape is not None:
        for x, y in page.shape.cells:
            cells[page.row + y, page.column + x] = color_of(page.shape.piece)
    is_full_row = (cells > 0).all(axis=1)
    remaining = cells[~is_full_row]
    empty_rows = np.zeros((HEIGHT - len(remaining), WIDTH), dtype=np.int64)
    return np.concatenate([remaining, empty_rows])


def write_fumen(pages: Iterable[FumenPage]) -> str:
    """Return the fumen of pages in which every piece comes to rest.

    A page is stored as the difference between its field, which is a board, and the field after
    the page before. If no cell differs, a digit counts how many of the next pages do not differ
    either. Those pages store no difference.
    """
    digits: list[int] = []
    previous = np.zeros((HEIGHT, WIDTH), dtype=np.int64)  # The field after the page before.
    # The index of the digit that counts unchanged pages. None if the page before had a
    # difference.
    counter: int | None = None
    flags = _COLORS_SET  # The format wants this flag on the first page; the others have none.
    for page in pages:
        difference = page.cells - previous
        is_unchanged = not difference.any()
        # A digit is at most _BASE - 1. If it cannot count further, a new digit begins.
        if is_unchanged and counter is not None and digits[counter] < _BASE - 1:
            digits[counter] += 1
        else:
            _write_difference(digits, difference)
            counter = None
            if is_unchanged:
                counter = len(digits)
                digits.append(0)
        _code_of(page, flags).write(digits)
        previous = after_page(page)
        flags = 0
    text = _PREFIX + "".join(_DIGITS[digit] for digit in digits)
    # Editors put "?" after every 47 characters.
    return "?".join(text[start : start + 47] for start in range(0, len(text), 47))


def _write(digits: list[int], number: int, count: int) -> None:
    """Append the digits of a number, the lowest first."""
    for place in range(count):
        digits.append(number // _BASE**place % _BASE)


def _write_difference(digits: list[int], difference: Cells) -> None:
    """Append the runs of equal differences, from the top row down to the garbage row."""
    with_garbage = np.pad(difference[::-1], ((0, 1), (0, 0)))
    for value, cells in groupby(with_garbage.ravel().tolist()):
        length = len(list(cells))
        _write(digits, (value + _NO_DIFFERENCE) * _CELLS + length - 1, 2)


def _code_of(page: FumenPage, flags: int) -> _PageCode:
    """Return the piece of a page, its rotation, its position and flags."""
    if page.shape is None:
        return _PageCode(0, 0, 0, flags)
    rotations = _rotations(page.shape.piece)
    rotation = next(key for key, turned in rotations.items() if turned.shape == page.shape)
    # The edges of a turned piece are relative to its position. Positions count the cells of the
    # field row by row, from the left end of the top row.
    _, left, bottom = rotations[rotation]
    x = page.column - left
    rows_from_top = HEIGHT - 1 - (page.row - bottom)
    position = rows_from_top * WIDTH + x
    return _PageCode(color_of(page.shape.piece), rotation, position, flags)
