"""The seven pieces and their orientations.

Every engine takes its tables from here. Numbering, first orientation and sense of rotation are
those of MDPTetris, the simulator of Thiery and Scherrer, "Building Controllers for Tetris",
ICGA Journal 32, 2009.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain

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
    def cells(self) -> tuple[tuple[int, int], ...]:
        """The cells as pairs (x, y), from the left and the bottom of the box."""
        cells = []
        for y, row in enumerate(self.rows):
            cells += [(x, y) for x in range(self.width) if row >> x & 1]
        return tuple(cells)

    @cached_property
    def bottoms(self) -> tuple[int, ...]:
        """Row of the lowest cell in each column of the box; at least one is 0."""
        bottoms = []
        for column in range(self.width):
            bottoms.append(min(y for x, y in self.cells if x == column))
        return tuple(bottoms)

    def turned(self) -> Shape:
        """Return the next orientation: turned by 90 degrees counter-clockwise."""
        rows = [0] * self.width
        for x, y in self.cells:
            # The cell in column x of row y turns to column height - 1 - y of row x.
            rows[x] |= 1 << (self.height - 1 - y)
        return Shape(self.piece, self.orientation + 1, self.height, self.width, tuple(rows))


# A drawing of the first orientation of each piece, top row first, and the number of different
# orientations.
_DRAWINGS = {
    "I": (("X", "X", "X", "X"), 2),
    "O": (("XX", "XX"), 1),
    "T": (("X.", "XX", "X."), 4),
    "Z": ((".X", "XX", "X."), 2),
    "S": (("X.", "XX", ".X"), 2),
    "J": (("X..", "XXX"), 4),
    "L": (("XXX", "X.."), 4),
}


def _orientations(piece: int) -> tuple[Shape, ...]:
    """Return the different orientations of a piece. Each is the one before, turned once."""
    drawing, count = _DRAWINGS[PIECE_LETTERS[piece]]
    rows = []
    for line in reversed(drawing):
        rows.append(sum(1 << x for x, cell in enumerate(line) if cell == "X"))
    shapes = [Shape(piece, 0, len(drawing[0]), len(drawing), tuple(rows))]
    while len(shapes) < count:
        shapes.append(shapes[-1].turned())
    return tuple(shapes)


PIECES: tuple[tuple[Shape, ...], ...] = tuple(
    _orientations(piece) for piece in range(len(PIECE_LETTERS))
)
"""``PIECES[piece][orientation]``, in the order in which a decision tries them."""


@lru_cache
def placements_on(width: int) -> tuple[tuple[Shape, int], ...]:
    """Return every placement on a board as (shape, column), in the order of its number.

    They are ordered by piece, then orientation, then column of the left edge. A board ten
    columns wide has 162 placements.
    """
    placements = []
    for shape in chain.from_iterable(PIECES):
        for column in range(width - shape.width + 1):
            placements.append((shape, column))
    return tuple(placements)


@lru_cache
def placement_numbers(width: int) -> dict[tuple[int, int, int], int]:
    """Return the number of every placement on a board, by (piece, orientation, column)."""
    return {
        (shape.piece, shape.orientation, column): number
        for number, (shape, column) in enumerate(placements_on(width))
    }
