"""Perfect play on a board: its values, its choices, the games it plays, its file."""

from __future__ import annotations

import functools
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernels.loader import Extension
from kernels.ops.philox import signed64
from kernels.support.checks import check_integer
from kernels.support.files import write_bytes
from tetris.game.decisions import after_states
from tetris.game.features import AfterState
from tetris.game.piece_stream import packed_source
from tetris.game.rules import PIECE_LETTERS, PLACEMENT_RULES, Rules
from tetris.play.engines import INCLUDES, load

MOST_CELLS = 32
"""Cells of the largest board: one of a bit a cell is a number of 32 bits."""

MOST_GAMES = 1_000_000_000
"""The most games that are played at once: 8 GB of lines."""

KNOWN_PIECES = 8  # values of a board, if the piece to be placed is known; one of them is not used
_FIGURES = ("lines_per_game", "error", "boards", "sweeps", "seconds")
_SOURCES = Path(__file__).parent / "iteration"


@functools.cache
def operators(*, cuda: bool = False) -> Any:
    """Return the operators of value iteration; see `tetris.play.engines.load`."""
    library = Extension(
        name="tetris_solver",
        sources=(_SOURCES / "iteration.cpp",),
        include_dirs=(_SOURCES, *INCLUDES),
        defines=(("TETRIS_LIBRARY", "tetris_solver"),),
        native=True,
        reason="Tetris solver",
    )
    return load(library, cuda=cuda)


@dataclass(frozen=True, eq=False)
class Solution:
    """Perfect play on a board.

    Attributes:
        rules: The game.
        pieces_known: 1, the piece to be placed, or 2, the next one, too.
        values: The lines to come, float64. One piece known: of each board, shape (2^cells,). Two: of each
            board and piece to be placed, shape (8 * 2^cells,), those of a board side by side. Row r, column c
            of a board is bit r * width + c. A board that play cannot reach has 0.
        lines_per_game: Of perfect play, from the empty board.
        error: Estimated error of that.
        boards: How many boards play can reach.
        sweeps: Of value iteration.
        seconds: That these took.
    """

    rules: Rules
    pieces_known: int
    values: Tensor
    lines_per_game: float
    error: float
    boards: int
    sweeps: int
    seconds: float

    def value(self, rows: Sequence[int], piece: int = 0) -> float:
        """Return the lines to come of a board.

        Args:
            rows: Rows of the board from the bottom; bit c is column c.
            piece: To be placed; ignored with one piece known.
        """
        board = sum(row << r * self.rules.width for r, row in enumerate(rows))
        return float(self.values[board if self.pieces_known == 1 else board * KNOWN_PIECES + piece])

    def choose(self, rows: Sequence[int], piece: int, next_piece: int | None = None) -> AfterState:
        """Return the best placement's after-state, by the reference engine; of several the first.

        Args:
            rows: Rows of the board from the bottom; bit c is column c.
            piece: To be placed.
            next_piece: The one after it; not None if two pieces are known.
        """
        if (next_piece is None) != (self.pieces_known == 1):
            raise ValueError(f"expected {self.pieces_known} known pieces")

        def lines(after: AfterState) -> float:
            return after.lines + (0.0 if after.game_over else self.value(after.rows, next_piece or 0))

        return max(after_states(tuple(rows), piece, self.rules), key=lines)

    def play(self, games: int, seed: int = 0, most_pieces: int = 1 << 40) -> Tensor:
        """Play games by the rules of the engines, on the device of the values.

        Args:
            games: Number of games, at most 10^9; game i has the pieces of stream i.
            seed: Of the pieces, 0 to 2^64 - 1.
            most_pieces: Of a game, below 2^63.

        Returns:
            Their lines, int64, shape (games,).

        Raises:
            TypeError: If an argument is no int.
            ValueError: If an argument is out of range.
            RuntimeError: If a game has not ended after ``most_pieces``, or the memory is too small.
        """
        games = check_integer("games", games, 1, MOST_GAMES)
        seed = check_integer("seed", seed, 0, (1 << 64) - 1)
        most_pieces = check_integer("most_pieces", most_pieces, 1, (1 << 63) - 1)
        lines = torch.empty(games, dtype=torch.int64, device=self.values.device)
        packed, count, _ = packed_source(self.rules)
        play = operators(cuda=self.values.is_cuda).play
        play(self.values, lines, signed64(seed), most_pieces, *problem(self.rules), packed, count)
        if int(lines.min()) < 0:
            raise RuntimeError(f"expected games to end within {most_pieces:,} pieces")
        return lines

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write a NumPy archive: boards that have a value, their values, rules and figures as JSON.

        ``boards`` is uint32, shape (n,); ``values`` float64, shape (n,), or (n, 7) if two pieces are known.

        Returns:
            The number n of boards that have a value other than 0.
        """
        rows = self.values.cpu().numpy().reshape(-1, 1 if self.pieces_known == 1 else KNOWN_PIECES)
        rows = rows[:, : len(PIECE_LETTERS)]
        boards = np.flatnonzero(rows.any(axis=1))
        said = {"rules": self.rules.to_dict(), "pieces_known": self.pieces_known}
        said |= {name: getattr(self, name) for name in _FIGURES}
        file = io.BytesIO()
        values = rows[boards] if self.pieces_known == 2 else rows[boards, 0]
        np.savez(file, solution=json.dumps(said), boards=boards.astype(np.uint32), values=values)
        write_bytes(path, file.getvalue())
        return len(boards)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Solution:
        """Read what `save` wrote.

        The solution takes the memory of its board where that has a value, up to 8 bytes each, or 64 if two
        pieces are known.

        Raises:
            OSError: If the file cannot be opened.
            ValueError: If it is no such file; the message names the file and the reason.
        """
        with Path(path).open("rb") as file:
            try:
                arrays = np.load(file, allow_pickle=False)
                said = json.loads(str(arrays["solution"]))
                rules, known = Rules.from_dict(said["rules"]), int(said["pieces_known"])
                size, boards = 1 << check_solvable(rules), arrays["boards"]
                values = np.zeros(size if known == 1 else (size, KNOWN_PIECES))
                if known == 1:
                    values[boards] = arrays["values"]
                else:
                    values[boards, : len(PIECE_LETTERS)] = arrays["values"]
                figures = {name: said[name] for name in _FIGURES}
                return cls(rules, known, torch.from_numpy(values.reshape(-1)), **figures)
            except Exception as error:  # zipfile, NumPy and json have a dozen for damaged bytes
                reason = str(error) or type(error).__name__
                raise ValueError(
                    f"expected {path} to be a solution that Solution.save wrote: {reason}"
                ) from error


def check_solvable(rules: Rules) -> int:
    """Return the cells of a board that can be solved.

    Raises:
        ValueError: If it is too large, or the rules are others than the solver's.
    """
    cells = rules.width * rules.height
    if cells > MOST_CELLS:
        raise ValueError(f"expected a board of at most {MOST_CELLS} cells, got {rules.board}: {cells}")
    if rules.pieces == "bag":
        raise ValueError("expected pieces that are drawn uniformly: a bag would be part of the state")
    problem(rules)
    return cells


def problem(rules: Rules) -> tuple[int, int, bool, int]:
    """Return the rules as the operators take them: width, height, rule, a bit a piece.

    Raises:
        ValueError: If the rule is not one of `PLACEMENT_RULES`.
    """
    if rules.rule not in PLACEMENT_RULES:
        raise ValueError(f"expected the rule to be {' or '.join(PLACEMENT_RULES)}, got {rules.rule}")
    return rules.width, rules.height, rules.clear_on_overflow, sum(1 << piece for piece in rules.piece_set)
