"""The view of a game: the piece of each cell, the falling piece, the next one, the counts.

The engines store a stack as bits. Only pictures need to know to which piece a cell belongs. A
`Scene` is one decision, and `board_kinds` returns what each cell of its board shows.
`tetris.view.images` and `tetris.view.text` draw these kinds.
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
from tetris.game.positions import cells_of
from tetris.game.rules import Rules

Cells = npt.NDArray[np.uint8]

UNKNOWN = 8
"""The value of a full cell whose piece is not known."""

# The kinds of a cell in a picture. STACK + piece is a cell of a piece at rest, and
# FALLING + piece is a cell of the falling piece. The last kind before FALLING is for `UNKNOWN`.
PAGE, EMPTY, FRAME, TEXT, FAINT, FULL, STACK = range(7)
FALLING = STACK + UNKNOWN

HEADROOM = 4
"""The rows above the board, which show the top of a piece that ends the game."""


@dataclass(frozen=True, eq=False)
class Scene:
    """One decision: the stack before it, the placement, and the counts over all games.

    Attributes:
        rules: The rules of the game.
        cells: The stack, shape (height + 4, width), row 0 at the bottom. An empty cell is 0, a
            full cell is the number of its piece plus one.
        rows: The same stack as bits: bit x of a row is column x.
        after: The board after the placement.
        next_piece: The number of the next piece; None if it is not known.
        pieces: The number of pieces placed, including this one.
        lines: The number of lines removed, including those of this placement.
        game_lines: The number of lines removed in this game, including those of this placement.
        games: The number of games that ended before this placement.
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
        """The rows that the placement completes, which are removed next."""
        if not self.after.lines:
            return ()
        is_full = (_with_piece(self.cells, self.after) > 0).all(axis=1)
        return tuple(np.flatnonzero(is_full).tolist())


class GameTracker:
    """Follows a stream of games, placement by placement, to show their scenes.

    The attributes are the stack and the counts before the next placement. They have the same
    names as those of `Scene`.
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

        The counts of the scene include the placement. The tracker does not change until
        `carry_out` is called with the scene.
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
        """Update the board and the counts of the tracker to those after a scene's placement.

        The piece is added to the cells, and the full rows are removed. If the placement ends
        the game, the next game begins on an empty board. ``cells`` has shape (height + 4,
        width), row 0 at the bottom. ``rows`` is the same stack as integers, one bit per cell.
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
            # Add as many empty rows at the top as full rows were removed.
            num_removed = len(scene.full)
            empty_rows = np.zeros_like(self.cells[:num_removed])
            self.cells = np.concatenate([remaining, empty_rows])
            self.rows = scene.after.rows
            self.game_lines = scene.game_lines

    def put_stack(self, rows: Rows) -> None:
        """Replace the stack by a stack of bits.

        If the new stack is the old one with additional rows below, its cells keep their pieces.
        Otherwise all full cells become `UNKNOWN`.
        """
        height, width = self.cells.shape
        cells: Cells = UNKNOWN * cells_of(rows, width, height).astype(np.uint8)
        new_rows = len(rows) - len(self.rows)
        if new_rows >= 0 and rows[new_rows:] == self.rows:
            cells[new_rows : len(rows)] = self.cells[: len(self.rows)]
        self.cells = cells
        self.rows = rows

    def follow(self, piece: int, rows: Rows) -> Scene | None:
        """Place a piece so that the stack becomes ``rows``, and return the scene.

        If no placement of the piece leads to this stack, the tracker does not change, and the
        result is None.
        """
        for after in after_states(self.rows, piece, self.rules):
            if after.rows == rows:
                scene = self.scene(after, next_piece=None)
                self.carry_out(scene)
                return scene
        return None


def scenes(
    rules: Rules, played: Iterable[AfterState], boards: Mapping[int, Rows] | None = None
) -> Iterator[Scene]:
    """Yield the scene of every placement.

    A scene shows the next piece. So the next placement is read before the scene is yielded.

    Args:
        rules: The rules of the games.
        played: The board after every placement, in order.
        boards: The stacks that the placements do not determine; see
            `tetris.record.replay.Replay`.
    """
    tracker = GameTracker(rules)
    boards = boards or {}
    # The last placement is paired with None, because its next piece is not known.
    for after, next_after in pairwise(chain(played, [None])):
        # The number of pieces so far is the index of this placement.
        if tracker.pieces in boards:
            tracker.put_stack(boards[tracker.pieces])
        assert after is not None  # Only the last `next_after` is None.
        next_piece = next_after.piece if next_after else None
        scene = tracker.scene(after, next_piece)
        yield scene
        tracker.carry_out(scene)


def board_kinds(cells: Cells, height: int) -> Cells:
    """Return the kind of each cell of a picture of a board, such as `EMPTY`.

    Args:
        cells: Cells with the values of a `Scene`'s cells; full ones may be `UNKNOWN`.
        height: The number of rows of the board. Empty cells above it belong to the page around
            the board.

    Returns:
        The kinds, with the shape of ``cells``.
    """
    kinds: Cells = np.where(cells > 0, cells + np.uint8(STACK - 1), np.uint8(EMPTY))
    kinds[height:][cells[height:] == 0] = PAGE
    return kinds


def scene_kinds(scene: Scene, row: int | None = None) -> Cells:
    """Return the kind of each cell of a scene, including its piece; see `board_kinds`.

    If the piece is at rest, the rows that it completes get the kind `FULL`.

    Args:
        scene: The scene.
        row: The row of the piece's bottom while it falls; None: the piece is at rest.
    """
    after = scene.after
    kinds = board_kinds(scene.cells, scene.rules.height)
    if row is None:
        row = after.landing_row
    put(kinds, after.shape, after.column, row, FALLING + after.shape.piece)
    if row == after.landing_row:
        kinds[list(scene.full)] = FULL
    return kinds


def put(cells: npt.NDArray[Any], shape: Shape, column: int, row: int, value: int) -> None:
    """Write a value to each cell of a piece in an array of a board.

    Args:
        cells: The array, row 0 at the bottom. It is changed in place.
        shape: The piece in its orientation.
        column: The column of the left edge of the piece.
        row: The row of the piece's bottom. Cells of the piece above the array are ignored.
        value: The value to write.
    """
    for x, y in shape.cells:
        if row + y < len(cells):
            cells[row + y, column + x] = value


def _with_piece(cells: Cells, after: AfterState) -> Cells:
    """Return a copy of the stack with the piece of an after-state at rest."""
    result: Cells = cells.copy()
    put(result, after.shape, after.column, after.landing_row, after.shape.piece + 1)
    return result
