"""The view of a game: the piece of each cell, the falling piece, the next one, the counts.

The engines keep a stack as bits; only pictures need the piece of a cell. A `Scene` is one decision,
`board_kinds` is what each cell of its board shows, and `tetris.view.images` and `tetris.view.text` draw that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from tetris.game.decisions import Pieces, Rows
from tetris.game.features import AfterState
from tetris.game.pieces import Shape
from tetris.game.rules import Rules

Cells = npt.NDArray[np.uint8]

UNKNOWN = 8
"""The value of a full cell whose piece is not known."""

# The kinds of a cell in a picture. The last two have a number a piece, and STACK one for `UNKNOWN`.
PAGE, EMPTY, FRAME, TEXT, FAINT, FULL, GHOST, HINT = range(8)
STACK, FALLING = 8, 16

HEADROOM = 4
"""Rows kept above the board: a piece that ends the game comes to rest with its top there."""


@dataclass(frozen=True, eq=False)
class Scene:
    """One decision: the stack before it, and where the piece comes to rest.

    Attributes:
        rules: The rules of the game.
        cells: The stack before the piece, shape (height + 4, width), row 0 at the bottom: 0 where empty,
            otherwise the number of the cell's piece plus one.
        rows: The same stack as rows of bits.
        after: The after-state of the placement.
        full: Rows that the placement completes; they are removed next.
        next_piece: Number of the next piece; None where it is not known.
        pieces: Pieces placed, this one included, over all games.
        lines: Lines removed, this placement's included, over all games.
        game_lines: The same in this game.
        games: Games ended before this placement.
    """

    rules: Rules
    cells: Cells
    rows: Rows
    after: AfterState
    full: tuple[int, ...]
    next_piece: int | None
    pieces: int
    lines: int
    game_lines: int
    games: int


class GameTracker:
    """The state of a stream of games: makes the scene of a placement, and carries it out.

    Its attributes are those of `Scene`, of the placements that were carried out.
    """

    def __init__(self, rules: Rules) -> None:
        """Set up an empty board."""
        self.rules = rules
        self.pieces = self.lines = self.games = self.game_lines = 0
        self.cells: Cells = np.zeros((rules.height + HEADROOM, rules.width), dtype=np.uint8)
        self.rows: Rows = ()

    def scene(self, after: AfterState, next_piece: int | None) -> Scene:
        """Return the scene of a placement on the current stack; nothing is carried out."""
        return Scene(
            rules=self.rules,
            cells=self.cells,
            rows=self.rows,
            after=after,
            full=_full_rows(self.rows, after) if after.lines else (),
            next_piece=next_piece,
            pieces=self.pieces + 1,
            lines=self.lines + after.lines,
            game_lines=self.game_lines + after.lines,
            games=self.games,
        )

    def carry_out(self, scene: Scene) -> None:
        """Make the placement of a scene: the piece joins the stack, full rows go, the game may end."""
        self.pieces, self.lines, self.game_lines = scene.pieces, scene.lines, scene.game_lines
        if scene.after.game_over:
            self.games += 1
            self.cells, self.rows, self.game_lines = np.zeros_like(self.cells), (), 0
        else:
            kept = np.delete(with_piece(scene), scene.full, axis=0)
            self.cells = np.concatenate([kept, np.zeros_like(self.cells[: len(scene.full)])])
            self.rows = scene.after.rows


def scenes(rules: Rules, played: Iterable[AfterState], pieces: Pieces | None = None) -> Iterator[Scene]:
    """Yield the scene of every placement. Without ``pieces`` the next one is read ahead, for its piece."""
    tracker = GameTracker(rules)
    coming: Iterable[tuple[AfterState, int | None]]
    if pieces is not None:
        coming = ((after, pieces[number]) for number, after in enumerate(played, start=1))
    else:
        ends: Iterable[AfterState | None] = chain(played, [None])
        coming = (
            (after, None if following is None else following.shape.piece)
            for after, following in pairwise(ends)
            if after is not None
        )
    for after, next_piece in coming:
        scene = tracker.scene(after, next_piece)
        yield scene
        tracker.carry_out(scene)


def board_kinds(
    cells: Cells,
    height: int,
    *,
    falling: AfterState | None = None,
    row: int | None = None,
    full: Sequence[int] = (),
    ghost: bool = False,
    hint: AfterState | None = None,
) -> Cells:
    """Return what each cell of a board shows, the rows above it included.

    Args:
        cells: The stack, shape (rows, width), row 0 at the bottom, as in `Scene`, or `UNKNOWN` where a cell's
            piece is not known.
        height: Rows of the board; those of ``cells`` beyond it are the space above.
        falling: A placement whose piece is shown.
        row: Row of the falling piece's bottom; None: at rest.
        full: Rows to light up.
        ghost: Whether to outline the falling piece at rest.
        hint: A placement to outline, the hint of a controller.

    Returns:
        The kind of each cell, shape as ``cells``.
    """
    kinds: Cells = np.where(cells > 0, cells + np.uint8(STACK - 1), np.uint8(EMPTY))
    kinds[height:][cells[height:] == 0] = PAGE
    if hint is not None:
        _put(kinds, hint, hint.landing_row, HINT)
    if falling is not None:
        if ghost:
            _put(kinds, falling, falling.landing_row, GHOST)
        _put(kinds, falling, falling.landing_row if row is None else row, FALLING + falling.shape.piece)
    for lit in full:
        kinds[lit] = FULL
    return kinds


def scene_kinds(
    scene: Scene, row: int | None = None, *, ghost: bool = False, hint: AfterState | None = None
) -> Cells:
    """Return the `board_kinds` of a scene; full rows are lit up where the piece is at rest."""
    full = scene.full if row in (None, scene.after.landing_row) else ()
    height = scene.rules.height
    return board_kinds(scene.cells, height, falling=scene.after, row=row, full=full, ghost=ghost, hint=hint)


def with_piece(scene: Scene) -> Cells:
    """Return a copy of the stack with the piece at rest, shape as ``scene.cells``."""
    cells: Cells = scene.cells.copy()
    _put(cells, scene.after, scene.after.landing_row, scene.after.shape.piece + 1)
    return cells


def shape_cells(shape: Shape) -> list[tuple[int, int]]:
    """Return the cells of a piece as it is turned: (x, y) inside its bounding box, y from the bottom."""
    return [(x, y) for y, row in enumerate(shape.rows) for x in range(shape.width) if row >> x & 1]


def _put(cells: Cells, placement: AfterState, row: int, value: int) -> None:
    """Write a value to the cells of a piece; those above the picture are left out."""
    for x, y in shape_cells(placement.shape):
        if row + y < len(cells):
            cells[row + y, placement.column + x] = value


def _full_rows(rows: Rows, after: AfterState) -> tuple[int, ...]:
    """The rows that a placement completes, before line removal."""
    full = []
    for y, cells in enumerate(after.shape.rows, start=after.landing_row):
        stack = rows[y] if y < len(rows) else 0
        if stack | cells << after.column == after.rules.full_row:
            full.append(y)
    return tuple(full)
