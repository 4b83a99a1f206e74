"""The view of a game: the piece of each cell, the falling piece, the next one, the counts.

The engines keep a stack as bits; only pictures need the piece of a cell. A `Scene` is one decision, drawn by
`tetris.view.images` or `tetris.view.text`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tetris.game.decisions import Pieces, Rows
from tetris.game.features import AfterState
from tetris.game.rules import Rules

Cells = npt.NDArray[np.uint8]

UNKNOWN = 8
"""The value of a full cell whose piece is not known."""

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

    Examples:
        >>> from tetris import published
        >>> from tetris.record.explanation import decisions
        >>> from tetris.game.piece_stream import PieceStream
        >>> rules = Rules(10, 20)
        >>> pieces = PieceStream(rules, 1, 0)
        >>> tracker = GameTracker(rules)
        >>> for after, _ in zip(decisions(published("dt20"), rules, pieces), range(100)):
        ...     scene = tracker.scene(after, pieces[tracker.pieces + 1])
        ...     tracker.carry_out(scene)
        >>> tracker.pieces
        100

    Attributes:
        rules: The rules of the games.
        cells: The stack, as in `Scene`.
        rows: The stack, as in `Scene`.
        pieces: Pieces placed.
        lines: Lines removed over all games.
        game_lines: Lines removed in this game.
        games: Games ended.
    """

    def __init__(self, rules: Rules) -> None:
        """Set up an empty board."""
        self.rules = rules
        self.pieces = self.lines = self.games = self.game_lines = 0
        self.cells: Cells = np.zeros((rules.height + HEADROOM, rules.width), dtype=np.uint8)
        self.rows: Rows = ()

    def scene(self, after: AfterState, next_piece: int | None) -> Scene:
        """Return the scene of a placement on the current stack; nothing is carried out.

        Args:
            after: The after-state of the placement.
            next_piece: Number of the next piece; None where it is not known.
        """
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
        after = scene.after
        self.pieces, self.lines, self.game_lines = scene.pieces, scene.lines, scene.game_lines
        if after.game_over:
            self.games += 1
            self._clear()
            return
        cells = with_piece(scene)
        kept = np.delete(cells, scene.full, axis=0)
        self.cells = np.concatenate([kept, np.zeros_like(cells[: len(scene.full)])])
        self.rows = after.rows

    def _clear(self) -> None:
        self.cells = np.zeros_like(self.cells)
        self.rows = ()
        self.game_lines = 0


def scenes(rules: Rules, played: Iterable[AfterState], pieces: Pieces | None = None) -> Iterator[Scene]:
    """Yield the scene of every placement.

    Args:
        rules: The rules of the games.
        played: The after-states of the placements, in order.
        pieces: The pieces, which give the next one. None: the next piece is that of the next placement,
            which is read ahead.
    """
    tracker = GameTracker(rules)
    coming = iter(played)
    after = next(coming, None)
    while after is not None:
        if pieces is not None:
            scene, following = tracker.scene(after, pieces[tracker.pieces + 1]), None
        else:
            following = next(coming, None)
            scene = tracker.scene(after, None if following is None else following.shape.piece)
        yield scene
        tracker.carry_out(scene)
        after = next(coming, None) if pieces is not None else following


def with_piece(scene: Scene) -> Cells:
    """Return a copy of the stack with the piece at rest, shape as ``scene.cells``."""
    cells: Cells = scene.cells.copy()
    after = scene.after
    for x, y in piece_cells(after):
        cells[after.landing_row + y, after.column + x] = after.shape.piece + 1
    return cells


def piece_cells(after: AfterState) -> list[tuple[int, int]]:
    """Return the cells of a piece as it is turned: (x, y) inside its bounding box, y from the bottom."""
    shape = after.shape
    return [(x, y) for y, row in enumerate(shape.rows) for x in range(shape.width) if row >> x & 1]


def _full_rows(rows: Rows, after: AfterState) -> tuple[int, ...]:
    """The rows that a placement completes, before line removal."""
    full = []
    for y, cells in enumerate(after.shape.rows, start=after.landing_row):
        stack = rows[y] if y < len(rows) else 0
        if stack | cells << after.column == after.rules.full_row:
            full.append(y)
    return tuple(full)
