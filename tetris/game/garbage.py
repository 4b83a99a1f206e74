"""Garbage: rows with one hole that rise under the stack, as in games of two players.

The hole of garbage row n of a stream is a pure function of (seed, stream, n), as the pieces are. It is drawn
from Philox4x32-10 under a key of its own, so that it tells nothing of the pieces.
"""

from __future__ import annotations

from tetris.game.decisions import Rows
from tetris.game.piece_stream import words
from tetris.game.rules import Rules

DOMAIN = 0x4741524241474521  # "GARBAGE!" in ASCII
"""Exclusive-or of the seed and this is the key of the holes."""


def hole_column(rules: Rules, seed: int, stream: int, n: int) -> int:
    """Return the column of the hole of garbage row n, counted from 0 over all games of the stream."""
    return (rules.width * words(seed ^ DOMAIN, stream, n // 4)[n % 4]) >> 32


def risen(rows: Rows, hole: int, rules: Rules) -> Rows:
    """Return the stack on top of a new row that is full but for one column, the hole."""
    return (rules.full_row & ~(1 << hole), *rows)
