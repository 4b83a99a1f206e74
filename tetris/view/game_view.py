"""The view of a game: the piece of each cell, the falling piece, the next one, the counts.

The engines keep a stack as bits; only pictures need the piece of a cell. A `Scene` is one decision,
`board_kinds` is what each cell of its board shows, and `tetris.view.images` and `tetris.view.text` draw that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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

# The kinds of a cell in a picture. The last two have a number a piece, and STACK one for `UNKNOWN`.
PAGE, EMPTY, FRAME, TEXT, FAINT, FULL = range(6)
STACK, FALLING = 6, 14

HEADROOM = 4
"""Rows kept above the board: a piece that ends the game comes to rest with its top there."""


@dataclass(frozen=True, eq=False)
class Scene:
    """One decision: the stack before it, where the piece comes to rest, and the counts over all games.

    The cells have the shape (height + 4, width), row 0 at the bottom: 0 where empty, otherwise the number of
    the cell's piece plus one.
    """

    rules: Rules
    cells: Cells
    rows: Rows  # the same stack as bits
    after: AfterState
    next_piece: int | None  # None where it is not known
    pieces: int  # placed, this one included
    lines: int  # removed, this placement's included
    game_lines: int  # the same in this game
    games: int  # ended before this placement

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

    def follow(self, piece: int, rows: Rows) -> Scene | None:
        """Make the placement of a piece that leads to a stack, and return its scene; None where none does."""
        for after in after_states(self.rows, piece, self.rules):
            if after.rows == rows:
                scene = self.scene(after, None)
                self.carry_out(scene)
                return scene
        return None


def scenes(rules: Rules, played: Iterable[AfterState]) -> Iterator[Scene]:
    """Yield the scene of every placement; the next one is read ahead, for its piece."""
    tracker = GameTracker(rules)
    for after, following in pairwise(chain(played, [None])):
        assert after is not None
        scene = tracker.scene(after, None if following is None else following.piece)
        yield scene
        tracker.carry_out(scene)


def board_kinds(cells: Cells, height: int) -> Cells:
    """Return the kind of each cell of a stack, the rows above its ``height`` included, shape as ``cells``.

    The cells are those of a `Scene`, or `UNKNOWN`.
    """
    kinds: Cells = np.where(cells > 0, cells + np.uint8(STACK - 1), np.uint8(EMPTY))
    kinds[height:][cells[height:] == 0] = PAGE
    return kinds


def scene_kinds(scene: Scene, row: int | None = None) -> Cells:
    """Return the `board_kinds` of a scene with its piece, whose bottom is in ``row``, None: at rest.

    There full rows are lit up.
    """
    kinds, after = board_kinds(scene.cells, scene.rules.height), scene.after
    row = after.landing_row if row is None else row
    put(kinds, after.shape, after.column, row, FALLING + after.shape.piece)
    if row == after.landing_row:
        kinds[list(scene.full)] = FULL
    return kinds


def stack_rows(rows: list[int]) -> Rows:
    """Return the rows of a board, bits as in a stack, without the empty ones above."""
    return tuple(rows[: len(rows) - next((n for n, row in enumerate(reversed(rows)) if row), len(rows))])


def shape_cells(shape: Shape) -> list[tuple[int, int]]:
    """Return the cells of a piece as it is turned: (x, y) inside its bounding box, y from the bottom."""
    return [(x, y) for y, row in enumerate(shape.rows) for x in range(shape.width) if row >> x & 1]


def put(cells: npt.NDArray[Any], shape: Shape, column: int, row: int, value: int) -> None:
    """Write a value to the cells of a piece; those above the picture are left out."""
    for x, y in shape_cells(shape):
        if row + y < len(cells):
            cells[row + y, column + x] = value


def _with_piece(cells: Cells, after: AfterState) -> Cells:
    """A copy of the stack with a piece at rest."""
    cells = cells.copy()
    put(cells, after.shape, after.column, after.landing_row, after.shape.piece + 1)
    return cells
