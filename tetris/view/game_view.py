"""The view of a game: the piece of each cell, the falling piece, the next one, the counts.

The engines keep a stack as bits; only pictures need the piece of a cell. A `Scene` is one decision,
`board_kinds` is what each cell of its board shows, and `tetris.view.images` and `tetris.view.text` draw that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count, islice, tee

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
        return tuple(np.flatnonzero((_with_piece(self.cells, self.after) > 0).all(axis=1)).tolist())


class GameTracker:
    """A stream of games; its attributes are those of `Scene`, of the placements that were carried out."""

    def __init__(self, rules: Rules) -> None:
        """Set up an empty board."""
        self.rules = rules
        self.pieces = self.lines = self.games = self.game_lines = 0
        self.cells: Cells = np.zeros((rules.height + HEADROOM, rules.width), dtype=np.uint8)
        self.rows: Rows = ()

    def scene(self, after: AfterState, next_piece: int | None) -> Scene:
        """Return the scene of a placement on the current stack; nothing is carried out."""
        counts = self.pieces + 1, self.lines + after.lines, self.game_lines + after.lines, self.games
        return Scene(self.rules, self.cells, self.rows, after, next_piece, *counts)

    def carry_out(self, scene: Scene) -> None:
        """Make the placement of a scene: the piece joins the stack, full rows go, the game may end."""
        self.pieces, self.lines, self.game_lines = scene.pieces, scene.lines, scene.game_lines
        if scene.after.game_over:
            self.games += 1
            self.cells, self.rows, self.game_lines = np.zeros_like(self.cells), (), 0
        else:
            kept = np.delete(_with_piece(self.cells, scene.after), scene.full, axis=0)
            self.cells = np.concatenate([kept, np.zeros_like(self.cells[: len(scene.full)])])
            self.rows = scene.after.rows


def scenes(rules: Rules, played: Iterable[AfterState], pieces: Pieces | None = None) -> Iterator[Scene]:
    """Yield the scene of every placement. Without ``pieces`` the next one is read ahead, for its piece."""
    coming: Iterator[int | None]
    if pieces is not None:
        coming = (pieces[number] for number in count(1))
    else:
        played, ahead = tee(played)
        coming = chain((after.shape.piece for after in islice(ahead, 1, None)), [None])
    tracker = GameTracker(rules)
    for after, next_piece in zip(played, coming, strict=False):
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
    """Return the kind of each cell of a board, the rows above its ``height`` included, shape as ``cells``.

    The cells are those of a `Scene`, or `UNKNOWN`. The ``falling`` piece is shown with its bottom in ``row``,
    None: at rest, where ``ghost`` outlines it; ``full`` rows are lit up, and a ``hint`` is outlined.
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


def shape_cells(shape: Shape) -> list[tuple[int, int]]:
    """Return the cells of a piece as it is turned: (x, y) inside its bounding box, y from the bottom."""
    return [(x, y) for y, row in enumerate(shape.rows) for x in range(shape.width) if row >> x & 1]


def _put(cells: Cells, placement: AfterState, row: int, value: int) -> None:
    """Write a value to the cells of a piece; those above the picture are left out."""
    for x, y in shape_cells(placement.shape):
        if row + y < len(cells):
            cells[row + y, placement.column + x] = value


def _with_piece(cells: Cells, after: AfterState) -> Cells:
    """A copy of the stack with a piece at rest."""
    cells = cells.copy()
    _put(cells, after, after.landing_row, after.shape.piece + 1)
    return cells
