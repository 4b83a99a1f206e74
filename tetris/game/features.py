"""The features of an after-state, by name.

Sources: the first six are Pierre Dellacherie's (Fahey 2003); hole_depth and rows_with_holes are
Thiery and Scherrer's (2009); diversity is from Gabillon, Ghavamzadeh and Scherrer (2013);
heights and differences are those of Bertsekas and Ioffe (1996). docs/features.md has a table of
all features. A stack that overflows the board, at the end of a game, has features, too: cells
above the top row count like any other cells, with one exception in `row_transitions`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial, reduce
from itertools import pairwise, product
from operator import or_

from tetris.game.pieces import PIECES, Shape
from tetris.game.rules import MAX_WIDTH, PIECE_LETTERS, Rules


@dataclass(frozen=True)
class AfterState:
    """The after-state of a placement: the board after line removal, and the placement.

    Attributes:
        rules: The rules of the game.
        shape: The piece as it was turned.
        column: Column of the left edge of the piece's bounding box, from 0.
        landing_row: Row of the piece's bottom where it came to rest, before lines were removed.
        rows: Rows of the board after line removal, from the bottom; bit c is column c. No empty
            row on top. After a game over it is the stack that overflowed, or that leaves no
            room for the next piece.
        lines: Lines removed.
        piece_cells_removed: Cells of this piece that were in the removed lines.
        game_over: Whether the game ended; the next piece then falls on an empty board.
    """

    rules: Rules
    shape: Shape
    column: int
    landing_row: int
    rows: tuple[int, ...]
    lines: int
    piece_cells_removed: int
    game_over: bool

    @property
    def piece(self) -> int:
        """Number of the piece, 0 to 6."""
        return self.shape.piece

    @property
    def orientation(self) -> int:
        """Number of the piece's orientation."""
        return self.shape.orientation

    @property
    def top(self) -> int:
        """The row above the piece where it came to rest, before lines were removed."""
        return self.landing_row + self.shape.height

    @property
    def next_rows(self) -> tuple[int, ...]:
        """The stack on which the next piece falls; empty after a game over."""
        return () if self.game_over else self.rows

    @cached_property
    def heights(self) -> tuple[int, ...]:
        """Height of each column, left to right."""
        # All features read this object. So a user's feature cannot sort it, as it could a list.
        return tuple(column_heights(self.rows, self.rules.width))


PLACEMENT_FEATURES = ("landing_height", "eroded_cells", "lines")
"""The features that describe the placement; all others describe the board after it."""

DENOMINATORS = {"landing_height": 2}
"""The factor that makes a feature an integer; the values of all others are integers."""

Feature = Callable[[AfterState], float]
_Family = Callable[..., float]

FEATURES: dict[str, Feature] = {}
"""Every feature by name."""


def _feature(definition: Feature) -> Feature:
    """Register a feature under the name of its function."""
    FEATURES[definition.__name__] = definition
    return definition


def _family(*endings: Iterable[int | str]) -> Callable[[_Family], _Family]:
    """Return a decorator that registers one feature for each combination of ``endings``.

    A function ``step(column, step_class, after)`` becomes the features ``step_0_0``,
    ``step_0_1`` and so on. The numbers at the end of a name are the function's first arguments.
    """

    def register(definition: _Family) -> _Family:
        for ending in product(*endings):
            name = "_".join(map(str, (definition.__name__, *ending)))
            FEATURES[name] = partial(definition, *ending)
        return definition

    return register


def column_heights(rows: Sequence[int], width: int) -> list[int]:
    """Return the height of each column, left to right: the row above its highest full cell."""
    heights = [0] * width
    empty_columns = (1 << width) - 1  # A bit for each column without a full cell so far.
    for height in range(len(rows), 0, -1):  # From the top row downwards.
        first_cells = rows[height - 1] & empty_columns
        empty_columns ^= first_cells
        while first_cells:  # Each bit is the top cell of its column.
            lowest_bit = first_cells & -first_cells
            heights[lowest_bit.bit_length() - 1] = height
            first_cells ^= lowest_bit
    return heights


@_feature
def landing_height(after: AfterState) -> float:
    """Height of the middle of the piece where it came to rest, before line removal."""
    return after.landing_row + (after.shape.height - 1) / 2


@_feature
def eroded_cells(after: AfterState) -> int:
    """Lines removed times the cells of this piece that were in them."""
    return after.lines * after.piece_cells_removed


@_feature
def lines(after: AfterState) -> int:
    """Lines removed."""
    return after.lines


@_feature
def row_transitions(after: AfterState) -> int:
    """Adjacent full/empty pairs in each row, both side walls full; an empty row has 2.

    A row above the board counts its pairs minus the 2 of an empty row (as in MDPTetris).
    """
    width = after.rules.width
    # In a walled row the columns are bits 1 to width, between the bits of the two side walls.
    right_wall = 1 << (width + 1)
    left_wall = 1
    # A walled row has width + 1 pairs of neighbours. Bit b stands for the cells b and b + 1.
    all_pairs = right_wall - 1
    transitions = 2 * after.rules.height  # As if all rows were empty.
    for row in after.rows:
        walled_row = right_wall | row << 1 | left_wall
        differing_pairs = (walled_row ^ walled_row >> 1) & all_pairs
        transitions += differing_pairs.bit_count() - 2
    return transitions


@_feature
def column_transitions(after: AfterState) -> int:
    """Adjacent full/empty pairs in each column; the floor is full, above the top is empty."""
    transitions = 0
    below = after.rules.full_row
    for row in after.rows:
        transitions += (row ^ below).bit_count()
        below = row
    return transitions + below.bit_count()


@_feature
def holes(after: AfterState) -> int:
    """Empty cells with a full cell somewhere above in the column."""
    return sum(row.bit_count() for row in _hole_cells(after))


@_feature
def wells(after: AfterState) -> int:
    """For every empty cell between full neighbours: the empty cells from it downwards."""
    return _empty_cells_downwards(after, _well_cells(after))


@_feature
def hole_depth(after: AfterState) -> int:
    """Full cells in an unbroken run of full cells that stands directly on an empty cell."""
    depth = 0
    on_hole = 0  # The cells of the row that count, as bits.
    below = after.rules.full_row
    for row in after.rows:
        # A full cell counts if the cell below it is empty or counts itself.
        on_hole = row & (on_hole | ~below)
        depth += on_hole.bit_count()
        below = row
    return depth


@_feature
def rows_with_holes(after: AfterState) -> int:
    """Rows with at least one hole."""
    return sum(row != 0 for row in _hole_cells(after))


@_feature
def diversity(after: AfterState) -> int:
    """Number of different height differences of neighbouring columns among -2..2."""
    return len({right - left for left, right in pairwise(after.heights)} & {-2, -1, 0, 1, 2})


@_feature
def wells_fast(after: AfterState) -> int:
    """As `wells`, but all empty cells directly below a well cell also count as well cells."""
    open_columns = 0  # A bit for each column with a well cell above and no full cell since.
    cells = _well_cells(after)
    for height in range(len(cells) - 1, -1, -1):  # From the top row downwards.
        open_columns = (open_columns | cells[height]) & ~after.rows[height]
        cells[height] = open_columns
    return _empty_cells_downwards(after, cells)


@_feature
def max_height(after: AfterState) -> int:
    """Height of the highest column."""
    return len(after.rows)


@_feature
def total_height(after: AfterState) -> int:
    """Sum of the heights of all columns."""
    return sum(after.heights)


@_family(range(MAX_WIDTH))
def column_height(index: int, after: AfterState) -> int:
    """Height of one column."""
    return after.heights[index]


@_family(range(MAX_WIDTH - 1))
def height_difference(index: int, after: AfterState) -> int:
    """Absolute difference of the heights of a column and its right neighbour."""
    return abs(after.heights[index + 1] - after.heights[index])


@_family((2, 3))
def deep_wells(depth: int, after: AfterState) -> int:
    """Columns lower than both neighbours by at least ``depth``; side walls are higher."""
    wall = max_height(after) + depth
    heights = [wall, *after.heights, wall]
    neighbours = zip(heights, heights[1:], heights[2:], strict=False)
    return sum(min(left, right) - height >= depth for left, height, right in neighbours)


@_family((3,))
def squared_deep_wells(depth: int, after: AfterState) -> float:
    """The square of `deep_wells`: a second deep well costs more than the first."""
    return deep_wells(depth, after) ** 2


@_feature
def bumpiness(after: AfterState) -> int:
    """Absolute differences of the heights of neighbouring columns, summed."""
    return sum(map(abs, _steps(after)))


@_feature
def peaks(after: AfterState) -> int:
    """Columns higher than both neighbours; a side wall is higher than any column."""
    return sum(step > 0 > next_step for step, next_step in _successive_steps(after))


@_feature
def flat_steps(after: AfterState) -> int:
    """Pairs of neighbouring columns of the same height."""
    return _steps(after).count(0)


@_feature
def single_steps(after: AfterState) -> int:
    """Pairs of neighbouring columns whose heights differ by 1."""
    return sum(abs(step) == 1 for step in _steps(after))


@_feature
def double_steps(after: AfterState) -> int:
    """Pairs of neighbouring columns whose heights differ by 2."""
    return sum(abs(step) == 2 for step in _steps(after))


@_feature
def flat_pairs(after: AfterState) -> int:
    """Number of triples of neighbouring columns of the same height."""
    return _successive_steps(after).count((0, 0))


@_feature
def rising_pairs(after: AfterState) -> int:
    """Pairs of neighbouring columns of the same height whose right neighbour is higher by 1."""
    return _successive_steps(after).count((0, 1))


@_feature
def falling_pairs(after: AfterState) -> int:
    """Pairs of neighbouring columns of the same height whose left neighbour is higher by 1."""
    return _successive_steps(after).count((-1, 0))


@_feature
def fitting_pieces(after: AfterState) -> int:
    """Number of pieces that fit the surface: somewhere they make no new hole.

    Line removal and the top of the board do not matter.
    """
    return sum(places >= 1 for places in _places(_steps(after)))


@_feature
def spare_pieces(after: AfterState) -> int:
    """Number of pieces that fit the surface, as in `fitting_pieces`, in at least two places.

    A bottom that contains another orientation's bottom does not count: where a J can lie flat,
    it can stand.
    """
    return sum(places >= 2 for places in _places(_steps(after)))


@_family("sz")
def fits(letter: str, after: AfterState) -> int:
    """1 if the S, or the Z, is one of the `fitting_pieces`, else 0."""
    piece = PIECE_LETTERS.index(letter.upper())
    return int(_places(_steps(after))[piece] >= 1)


@_feature
def highest_hole(after: AfterState) -> int:
    """Height of the upper edge of the highest hole, 0 where there is none."""
    return max((row + 1 for row in _rows_of_holes(after)), default=0)


@_feature
def adjacent_rows_with_holes(after: AfterState) -> int:
    """Pairs of neighbouring rows that both hold a hole."""
    rows = _rows_of_holes(after)
    return sum(row + 1 in rows for row in rows)


@_feature
def upper_hole_rows(after: AfterState) -> int:
    """Rows with holes among the highest row with a hole and the three below it."""
    rows = _rows_of_holes(after)
    return sum(row > max(rows) - 4 for row in rows)


@_feature
def columns_with_holes(after: AfterState) -> int:
    """Columns with at least one hole."""
    return reduce(or_, _hole_cells(after), 0).bit_count()


@_feature
def gaps_over_holes(after: AfterState) -> int:
    """Empty cells of the rows directly above a row with holes that have none themselves.

    Completing these rows opens the holes below.
    """
    rows = _rows_of_holes(after)
    return sum(_gaps(after, row + 1) for row in rows if row + 1 not in rows)


@_feature
def gaps_over_highest_hole(after: AfterState) -> int:
    """Empty cells of the row directly above the highest hole, 0 where there is none."""
    rows = _rows_of_holes(after)
    return _gaps(after, max(rows) + 1) if rows else 0


@_feature
def nearly_full_rows(after: AfterState) -> int:
    """Rows with exactly one empty cell."""
    return sum(_gaps(after, row) == 1 for row in range(len(after.rows)))


@_feature
def thin_covers(after: AfterState) -> int:
    """Columns whose topmost full cell is directly above an empty cell."""
    covers = 0
    for column, height in enumerate(after.heights):
        if height > 1:  # The topmost full cell is in row height - 1, so look at the row below.
            covers += not after.rows[height - 2] >> column & 1
    return covers


STEP_CLASSES = 7
"""Classes of a step to the next column: 3 or more down, 2, 1, none, 1 up, 2, 3 or more."""


def _step_class(after: AfterState, column: int) -> int:
    """The class of the step at a column's right side: the difference of heights plus 3."""
    heights = after.heights
    return min(max(heights[column + 1] - heights[column] + 3, 0), STEP_CLASSES - 1)


# A level step has no feature, and neither has a pair of level steps: it is there whenever all
# other features of the column are 0.
_LEVEL = STEP_CLASSES // 2


@_family(range(MAX_WIDTH - 1), [number for number in range(STEP_CLASSES) if number != _LEVEL])
def step(column: int, step_class: int, after: AfterState) -> int:
    """1 if the step from a column to the next one belongs to a class, else 0."""
    return int(_step_class(after, column) == step_class)


@_family(range(MAX_WIDTH - 2), range(STEP_CLASSES), range(STEP_CLASSES))
def step_pair(column: int, step_class: int, next_class: int, after: AfterState) -> int:
    """1 if the step after a column and the next step belong to two given classes, else 0."""
    classes = _step_class(after, column), _step_class(after, column + 1)
    return int(classes == (step_class, next_class))


for _column in range(MAX_WIDTH - 2):
    del FEATURES[f"step_pair_{_column}_{_LEVEL}_{_LEVEL}"]


def _steps(after: AfterState) -> tuple[int, ...]:
    """Height of each column minus that of its left neighbour, left to right."""
    return tuple(right - left for left, right in pairwise(after.heights))


def _successive_steps(after: AfterState) -> list[tuple[int, int]]:
    return list(pairwise(_steps(after)))


def _occurrences(part: tuple[int, ...], steps: tuple[int, ...]) -> int:
    """Return how often a shorter sequence of steps occurs in the steps of a surface."""
    places = range(len(steps) - len(part) + 1)
    return sum(steps[place : place + len(part)] == part for place in places)


@cache
def _bottoms(piece: int) -> list[tuple[int, ...]]:
    """Return the steps along the bottom of a piece, for each orientation that matters.

    An orientation does not matter if its bottom contains the bottom of another orientation: the
    other one then fits in all the same places.
    """
    bottoms = []
    for shape in PIECES[piece]:
        bottoms.append(tuple(right - left for left, right in pairwise(shape.bottoms)))
    minimal = []
    for bottom in bottoms:
        if not any(part != bottom and _occurrences(part, bottom) for part in bottoms):
            minimal.append(bottom)
    return minimal


@lru_cache(maxsize=256)
def _places(steps: tuple[int, ...]) -> list[int]:
    """Return for each piece in how many places of a surface it fits without a new hole.

    A piece fits where the steps of the surface equal the steps of one of its `_bottoms`.
    """
    counts = []
    for piece in range(len(PIECES)):
        counts.append(sum(_occurrences(bottom, steps) for bottom in _bottoms(piece)))
    return counts


def _gaps(after: AfterState, row: int) -> int:
    return after.rules.width - after.rows[row].bit_count()


def _rows_of_holes(after: AfterState) -> set[int]:
    top = len(after.rows) - 1
    return {top - depth for depth, row in enumerate(_hole_cells(after)) if row}


def _hole_cells(after: AfterState) -> list[int]:
    """Return the holes of each row, as bits, from the top of the stack downwards."""
    covered = 0  # A bit for each column with a full cell in a row above.
    cells = []
    for row in reversed(after.rows):
        cells.append(covered & ~row)
        covered |= row
    return cells


def _well_cells(after: AfterState) -> list[int]:
    """Return the well cells of each row, as bits, from the bottom.

    A well cell is an empty cell between full cells or side walls. A board has at least four
    columns, so the empty rows above the stack have no well cells.
    """
    # A shift puts the neighbour of a column, or the side wall, at the column's bit.
    right_wall = 1 << (after.rules.width - 1)
    return [~row & (row << 1 | 1) & (row >> 1 | right_wall) for row in after.rows]


def _empty_cells_downwards(after: AfterState, cells: Sequence[int]) -> int:
    """Return a sum over cells: the number of empty cells from each cell downwards.

    ``cells`` has the cells to sum over as bits of each row, from the bottom; they must be
    empty. Counting downwards from a cell stops at the first full cell.
    """
    rows = after.rows
    total = 0
    for first_row, first_cells in enumerate(cells):
        # Go down from the cells of this row. `empty` has a bit for each column in which no full
        # cell has stopped the count.
        row = first_row
        empty = first_cells
        while empty:
            total += empty.bit_count()
            row -= 1
            empty = empty & ~rows[row] if row >= 0 else 0
    return total


def feature_values(after: AfterState, names: Sequence[str]) -> list[float]:
    """Return the values of the named features of an after-state, in the order of the names."""
    return [FEATURES[name](after) for name in names]
