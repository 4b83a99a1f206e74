"""The seven pieces and their orientations.

Every engine takes its tables from here. Numbering, first orientation and sense of rotation are those of
MDPTetris, the simulator of Thiery and Scherrer, "Building Controllers for Tetris", ICGA Journal 32, 2009.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from tetris.game.rules import PIECE_LETTERS


@dataclass(frozen=True)
class Shape:
    """A piece in one orientation, inside its bounding box.

    Attributes:
        piece: Number of the piece, 0 to 6 in the order ``IOTZSJL``.
        orientation: Number of the orientation, from 0.
        width: Columns of the bounding box.
        height: Rows of the bounding box.
        rows: Rows of the box from the bottom; bit c is column c of the box.
    """

    piece: int
    orientation: int
    width: int
    height: int
    rows: tuple[int, ...]

    @cached_property
    def bottoms(self) -> tuple[int, ...]:
        """Row of the lowest cell of each column of the box. One of them is 0."""
        return tuple(min(y for y, row in enumerate(self.rows) if row >> x & 1) for x in range(self.width))

    def turned(self) -> Shape:
        """Return the next orientation: 90 degrees counter-clockwise, (x, y) to (height - 1 - y, x)."""
        rows = [0] * self.width
        for y, row in enumerate(self.rows):
            for x in range(self.width):
                rows[x] |= (row >> x & 1) << (self.height - 1 - y)
        return Shape(self.piece, self.orientation + 1, self.height, self.width, tuple(rows))


# The first orientation of each piece as it is drawn, top row first, and how many different orientations it
# has.
_FIRST = {
    "I": (("X", "X", "X", "X"), 2),
    "O": (("XX", "XX"), 1),
    "T": (("X.", "XX", "X."), 4),
    "Z": ((".X", "XX", "X."), 2),
    "S": (("X.", "XX", ".X"), 2),
    "J": (("X..", "XXX"), 4),
    "L": (("XXX", "X.."), 4),
}


def _orientations(piece: int) -> tuple[Shape, ...]:
    drawing, count = _FIRST[PIECE_LETTERS[piece]]
    rows = tuple(sum(1 << x for x, cell in enumerate(line) if cell == "X") for line in reversed(drawing))
    shapes = [Shape(piece, 0, len(drawing[0]), len(drawing), rows)]
    while len(shapes) < count:
        shapes.append(shapes[-1].turned())
    return tuple(shapes)


PIECES: tuple[tuple[Shape, ...], ...] = tuple(_orientations(piece) for piece in range(len(PIECE_LETTERS)))
"""``PIECES[piece][orientation]``, in the order in which a decision tries them."""


@lru_cache
def placements_on(width: int) -> tuple[tuple[Shape, int], ...]:
    """Return every placement on a board as (shape, column), in the order of its number.

    That is by piece, then orientation, then column of the left edge: 162 on a board ten columns wide.
    """
    return tuple(
        (shape, column) for shapes in PIECES for shape in shapes for column in range(width - shape.width + 1)
    )


@lru_cache
def placement_numbers(width: int) -> dict[tuple[int, int, int], int]:
    """Return the number of every placement on a board, by (piece, orientation, column)."""
    return {
        (shape.piece, shape.orientation, column): number
        for number, (shape, column) in enumerate(placements_on(width))
    }
