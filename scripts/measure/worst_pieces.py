"""Measure how long any player lasts on small boards when only S and Z come, and the bound that follows.

python scripts/measure worst_pieces
python scripts/measure worst_pieces --boards 4x4 5x4 --json worst_pieces.json

The boards are all those that play with the seven pieces can reach. From each of them, the most pieces that
can be placed before the end, whatever the player does, where

- S and Z alternate (H. Burgiel, How to Lose at Tetris, Mathematical Gazette 81, 1997);
- each piece is the worse of S and Z for the board (J. Brzustowski, Can You Win at Tetris?, 1992);

and the greatest probability to place n pieces, each S or Z at random, with one piece known or two. With
pieces drawn uniformly from seven, a run of n pieces of S and Z comes with probability (2/7)^n wherever a game
is, so that for any player

    pieces a game <= n / [(2/7)^n P(the game ends within n random pieces of S and Z, from the best board)].

By the published rule; three minutes on two cores.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from measure.cli import boards_option, measurement
from measure.provenance import Measured
from tetris import Rules
from tetris.pieces import PIECES, Shape
from tetris.rules import PIECE_LETTERS
from tetris.solver import solve
from tetris.solver.value_iteration import reachable

BOARDS = ("4x4", "4x5", "4x6", "5x4", "5x5", "6x4")
MOST = 200
"""The most pieces of S and Z that are looked ahead; what lasts longer counts as lasting for ever."""

NEGLIGIBLE = 1e-9
"""Probability below which random pieces are looked at no further."""

_CELLS = 4  # of a piece

_S, _Z = PIECE_LETTERS.index("S"), PIECE_LETTERS.index("Z")
_Boards = npt.NDArray[np.int64]  # a bit a cell: row r, column c is bit r * width + c


def mirrored(boards: _Boards, rules: Rules) -> _Boards:
    """Return boards with left and right exchanged."""
    found = np.zeros_like(boards)
    for row in range(rules.height):
        for column in range(rules.width):
            cell = boards >> row * rules.width + column & 1
            found |= cell << row * rules.width + rules.width - 1 - column
    return found


def placed(boards: _Boards, shape: Shape, column: int, rules: Rules) -> _Boards:
    """Return the boards after a placement, -1 where it ends the game."""
    width, height = rules.width, rules.height
    landing = np.zeros_like(boards)
    for x, bottom in enumerate(shape.bottoms):
        top = np.zeros_like(boards)
        for row in range(height):
            top[(boards >> row * width + column + x & 1).astype(bool)] = row + 1
        np.maximum(landing, top - bottom, out=landing)
    piece = sum(cells << y * width + column for y, cells in enumerate(shape.rows))
    over = landing + shape.height > height
    stack = boards | piece << np.where(over, 0, landing) * width
    after, rows = np.zeros_like(boards), np.zeros_like(boards)
    for row in range(height):
        cells = stack >> row * width & rules.full_row
        kept = cells != rules.full_row
        after |= np.where(kept, cells << rows * width, 0)
        rows += kept
    return np.where(over, -1, after)


class Game:
    """All boards that can be reached, and where the placements of S and of Z lead.

    Attributes:
        boards: Ascending; of two that mirror each other both are there.
        after: By piece, shape (placements, boards): the index of the board after each placement; that of the
            end of the game is the number of boards.
    """

    def __init__(self, rules: Rules) -> None:
        """Find the boards."""
        some = reachable(rules, "cpu").numpy().astype(np.int64) & 0xFFFFFFFF
        self.boards = np.union1d(some, mirrored(some, rules))
        count = len(self.boards)
        index = np.full((1 << rules.width * rules.height) + 1, count, dtype=np.int32)  # the last is of -1
        index[self.boards] = np.arange(count, dtype=np.int32)
        self.after = {
            piece: np.stack(
                [
                    index[placed(self.boards, shape, column, rules)]
                    for shape in PIECES[piece]
                    for column in range(rules.width - shape.width + 1)
                ]
            )
            for piece in (_S, _Z)
        }

    def best(self, piece: int, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the greatest value after a placement of a piece, by board; the last value is of the end."""
        found = values[self.after[piece][0]]
        for after in self.after[piece][1:]:
            np.maximum(found, values[after], out=found)
        return np.append(found, values.dtype.type(0))


class Survival(NamedTuple):
    """How many pieces of S and Z can be placed before the end; None: there is no end to it."""

    alternating: tuple[int | None, int | None]  # from the empty board, and from the best one
    adaptive: tuple[int | None, int | None]  # the same where the worse one comes
    probabilities: list[float]  # to place 1, 2, ... random ones from the best board
    next_known: list[float]  # the same where the next piece is known


def survival(game: Game) -> Survival:
    """Return how many pieces of S and Z can be placed before the end."""
    alive = np.append(np.ones(len(game.boards), dtype=bool), False)
    after_s = after_z = worse = alive  # whether n pieces can be placed: S first, Z first, the worse
    random = alive.astype(np.float64)
    known = {_S: random, _Z: random}  # by the piece that falls; the best placement depends on the next one
    most: list[list[int | None]] = [[None, None], [None, None]]
    probabilities: list[float] = []
    next_known: list[float] = []
    for n in range(MOST):
        after_s, after_z = game.best(_S, after_z), game.best(_Z, after_s)
        worse = game.best(_S, worse) & game.best(_Z, worse)
        random = (game.best(_S, random) + game.best(_Z, random)) / 2
        known = {piece: (game.best(piece, known[_S]) + game.best(piece, known[_Z])) / 2 for piece in (_S, _Z)}
        probabilities.append(float(random.max()))
        next_known.append(float(known[_S].max() + known[_Z].max()) / 2)
        for last, now in zip(most, (after_s | after_z, worse), strict=True):
            for i, some in enumerate((now[0], now.any())):
                if last[i] is None and not some:
                    last[i] = n
        if not after_s.any() and not after_z.any() and next_known[-1] < NEGLIGIBLE:
            break
    (empty, best), (worse_empty, worse_best) = most
    return Survival((empty, best), (worse_empty, worse_best), probabilities, next_known)


def bound(probabilities: Sequence[float]) -> tuple[float, int]:
    """Return the least upper bound on the pieces of a game, and the number of pieces it looks ahead."""
    return min(
        (n / ((2 / 7) ** n * (1 - placed)), n) for n, placed in enumerate(probabilities, 1) if placed < 1
    )


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return on each board what S and Z leave of a game, and perfect play of all seven pieces."""
    figures: dict[str, float] = {}
    found: list[dict[str, Any]] = []
    for board in arguments.boards or BOARDS:
        rules = Rules(*Rules.parse_board(board))
        game = Game(rules)
        lasts = survival(game)
        pieces, ahead = bound(lasts.probabilities)
        pieces_next, _ = bound(lasts.next_known)
        lines, lines_next = (_CELLS / rules.width * each for each in (pieces, pieces_next))
        perfect = solve(rules, device=device).lines_per_game
        found.append(
            {
                "board": board,
                "boards": len(game.boards),
                "alternating": lasts.alternating,
                "adaptive": lasts.adaptive,
                "probabilities": lasts.probabilities,
                "ahead": ahead,
                "bound": lines,
                "next_known": lasts.next_known,
                "bound_next_known": lines_next,
                "perfect": perfect,
            }
        )
        figures |= {
            f"worst_pieces.{board}.{name}": float(value)
            for name, value in (
                ("adaptive", lasts.adaptive[1]),
                ("alternating", lasts.alternating[1]),
                ("bound_lines", lines),
                ("bound_lines_next_known", lines_next),
                ("perfect_lines", perfect),
            )
            if value is not None
        }
        print(f"{board}: {found[-1]['alternating']}, {found[-1]['adaptive']}, {lines:.3g}", flush=True)
    return figures, {"measurements": found}, {}


main = measurement(measure, __doc__, boards_option(BOARDS), devices=("cpu",))
