"""The view of a game: the piece of each cell, the falling piece, the next one, the counts.

The engines keep a stack as bits; only pictures need the piece of a cell. A `Scene` is one
decision, `board_kinds` is what each cell of its board shows, and `tetris.view.images` and
`tetris.view.text` draw that.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris.game.decisions import Rows, after_states
from tetris.game.features import AfterState
from tetris.game.pieces import Shape
from tetris.game.rules import Rules

Cells = npt.NDArray[np.uint8]

UNKNOWN = 8
"""The value of a full cell whose piece is not known."""

# The kinds of a cell in a picture. STACK and FALLING are followed by one for each other piece,
# and STACK also by one for `UNKNOWN`.
PAGE, EMPTY, FRAME, TEXT, FAINT, FULL, STACK = range(7)
FALLING = STACK + UNKNOWN

HEADROOM = 4
"""Rows above the board, for the top of a piece that ends the game."""


@dataclass(frozen=True, eq=False)
class Scene:
    """One decision: the stack before it, the placement, and the counts over all games.

    Attributes:
        rules: The rules of the game.
        cells: The stack, shape (height + 4, width), row 0 at the bottom: 0 for an empty cell,
            otherwise the number of the cell's piece plus one.
        rows: The same stack as bits.
        after: The after-state of the placement.
        next_piece: The next piece; None if it is not known.
        pieces: Pieces placed, this one included.
        lines: Lines removed, those of this placement included.
        game_lines: The same, in this game.
        games: Games that ended before this placement.
    """

    rules: Rules
    cells: Cells
    rows: Rows
    after: AfterState
    next_piece: int | None
    pieces: int
    lines: int
    game_lines: int
    games: int

    @cached_property
    def full(self) -> tuple[int, ...]:
        """Rows that the placement completes; they are removed next."""
        if not self.after.lines:
            return ()
        is_full = (_with_piece(self.cells, self.after) > 0).all(axis=1)
        return tuple(np.flatnonzero(is_full).tolist())


class GameTracker:
    """Follows a stream of games, placement by placement, to show their scenes.

    The attributes have the meaning of those of `Scene`, before the next placement.
    """

    def __init__(self, rules: Rules) -> None:
        """Set up an empty board."""
        self.rules = rules
        self.pieces = 0
        self.lines = 0
        self.games = 0
        self.game_lines = 0
        self.cells: Cells = np.zeros((rules.height + HEADROOM, rules.width), dtype=np.uint8)
        self.rows: Rows = ()

    def scene(self, after: AfterState, next_piece: int | None) -> Scene:
        """Return the scene of a placement: the board before it, the placement and the counts.

        The counts of the scene include the placement. The tracker itself does not change;
        `carry_out` changes it.
        """
        return Scene(
            rules=self.rules,
            cells=self.cells,
            rows=self.rows,
            after=after,
            next_piece=next_piece,
            pieces=self.pieces + 1,
            lines=self.lines + after.lines,
            game_lines=self.game_lines + after.lines,
            games=self.games,
        )

    def carry_out(self, scene: Scene) -> None:
        """Carry out the placement of a scene: update the board and the counts of the tracker.

        The piece is added to the cells and the full rows are removed. If the placement ends the
        game, the next game begins on an empty board. ``cells`` has shape (height + 4, width),
        row 0 at the bottom, and ``rows`` is the same stack as bits.
        """
        self.pieces = scene.pieces
        self.lines = scene.lines
        if scene.after.game_over:
            self.games += 1
            self.cells = np.zeros_like(self.cells)
            self.rows = ()
            self.game_lines = 0
        else:
            with_piece = _with_piece(self.cells, scene.after)
            remaining = np.delete(with_piece, scene.full, axis=0)
            # As many empty rows come in at the top as full rows were removed.
            empty_rows = np.zeros_like(self.cells[: len(scene.full)])
            self.cells = np.concatenate([remaining, empty_rows])
            self.rows = scene.after.rows
            self.game_lines = scene.game_lines

    def put_stack(self, rows: Rows) -> None:
        """Replace the stack; cells keep their pieces only where new rows have risen below."""
        stack = np.array(rows, dtype=np.int64)[:, np.newaxis]
        is_full = stack >> np.arange(self.rules.width) & 1
        cells = np.zeros_like(self.cells)
        cells[: len(rows)] = is_full * UNKNOWN
        risen = len(rows) - len(self.rows)
        if risen >= 0 and rows[risen:] == self.rows:
            cells[risen : len(rows)] = self.cells[: len(self.rows)]
        self.cells = cells
        self.rows = rows

    def follow(self, piece: int, rows: Rows) -> Scene | None:
        """Place a piece so that the stack becomes ``rows``, and return the scene.

        It returns None, and changes nothing, if no placement of the piece leads to this stack.
        """
        for after in after_states(self.rows, piece, self.rules):
            if after.rows == rows:
                scene = self.scene(after, None)
                self.carry_out(scene)
                return scene
        return None


def scenes(
    rules: Rules, played: Iterable[AfterState], boards: Mapping[int, Rows] | None = None
) -> Iterator[Scene]:
    """Yield the scene of every placement, from the after-states of games in order.

    A scene shows the next piece. So the next placement is read before the scene is yielded.
    ``boards`` are those of a `tetris.record.replay.Replay`.
    """
    tracker = GameTracker(rules)
    boards = boards or {}
    for after, next_after in pairwise(chain(played, [None])):  # The last one has no next piece.
        if tracker.pieces in boards:
            tracker.put_stack(boards[tracker.pieces])
        assert after is not None
        scene = tracker.scene(after, next_after.piece if next_after else None)
        yield scene
        tracker.carry_out(scene)


def board_kinds(cells: Cells, height: int) -> Cells:
    """Return the kind of each cell of a picture of a board, such as `EMPTY`.

    Args:
        cells: The cells of a `Scene`, or the value `UNKNOWN` for full cells.
        height: The number of rows of the board; rows above it belong to the page around it.

    Returns:
        The kinds, of the shape of ``cells``.
    """
    kinds: Cells = np.where(cells > 0, cells + np.uint8(STACK - 1), np.uint8(EMPTY))
    kinds[height:][cells[height:] == 0] = PAGE
    return kinds


def scene_kinds(scene: Scene, row: int | None = None) -> Cells:
    """Return the `board_kinds` of a scene with its piece.

    Args:
        scene: The scene.
        row: The row of the piece's bottom while it falls; None: the piece is at rest. If it is
            at rest, the rows that it completes are highlighted.
    """
    after = scene.after
    kinds = board_kinds(scene.cells, scene.rules.height)
    if row is None:
        row = after.landing_row
    put(kinds, after.shape, after.column, row, FALLING + after.shape.piece)
    if row == after.landing_row:
        kinds[list(scene.full)] = FULL
    return kinds


def stack_rows(rows: list[int]) -> Rows:
    """Return the rows of a board, as bits, without the empty rows on top."""
    height = len(rows)
    while height and not rows[height - 1]:
        height -= 1
    return tuple(rows[:height])


def shape_cells(shape: Shape) -> list[tuple[int, int]]:
    """Return the cells of a shape: (x, y) inside its bounding box, y from the bottom."""
    cells = []
    for y, row in enumerate(shape.rows):
        cells += [(x, y) for x in range(shape.width) if row >> x & 1]
    return cells


def put(cells: npt.NDArray[Any], shape: Shape, column: int, row: int, value: int) -> None:
    """Write a value to each cell of a piece in an array of a board, row 0 at the bottom.

    Args:
        cells: The array, which is changed.
        shape: The piece as it was turned.
        column: Column of the left edge of the piece.
        row: Row of the piece's bottom. Cells of the piece above the array are left out.
        value: The value to write.
    """
    for x, y in shape_cells(shape):
        if row + y < len(cells):
            cells[row + y, column + x] = value


def _with_piece(cells: Cells, after: AfterState) -> Cells:
    """Return a copy of the stack with the piece of an after-state at rest."""
    cells = cells.copy()
    put(cells, after.shape, after.column, after.landing_row, after.shape.piece + 1)
    return cells
