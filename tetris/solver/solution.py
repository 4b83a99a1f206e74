"""Perfect play on a board: its values, its choices, the games it plays, its file."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kernels.checks import check_integer
from kernels.files import write_bytes
from tetris.features import AfterState
from tetris.game import after_states
from tetris.piece_stream import packed_source
from tetris.rules import PIECE_LETTERS, PLACEMENT_RULES, Rules
from tetris.solver.native import operators

KNOWN_PIECES = 8  # values of a board, if the piece to be placed is known; one of them is not used
_FIGURES = ("lines_per_game", "error", "boards", "sweeps", "seconds")


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
            piece: To be placed; it counts if two pieces are known.
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
            games: Number of games; game i has the pieces of stream i.
            seed: Of the pieces.
            most_pieces: Of a game.

        Returns:
            Their lines, int64, shape (games,).

        Raises:
            RuntimeError: If a game has not ended after ``most_pieces``.
        """
        check_integer("games", games, 1, 1 << 40)
        lines = torch.empty(games, dtype=torch.int64, device=self.values.device)
        packed, count, _ = packed_source(self.rules)
        play = operators(cuda=self.values.is_cuda).play
        play(self.values, lines, 0, seed, most_pieces, *problem(self.rules), packed, count)
        if int(lines.min()) < 0:
            raise RuntimeError(f"expected games to end within {most_pieces:,} pieces")
        return lines

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a NumPy archive: boards that have a value, their values, rules and figures as JSON.

        ``boards`` is uint32, shape (n,); ``values`` float64, shape (n,), or (n, 7) if two pieces are known.
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

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Solution:
        """Read what `save` wrote.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If it is no such file.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                said = json.loads(str(file["solution"]))
                boards, values = file["boards"], file["values"]
            rules, known = Rules.from_dict(said["rules"]), check_integer("known", said["pieces_known"], 1, 2)
            figures = {name: said[name] for name in _FIGURES}
            shape = (1 << rules.width * rules.height, KNOWN_PIECES if known == 2 else 1)
            dense = np.zeros(shape)
            dense[boards, : len(PIECE_LETTERS)] = values.reshape(len(boards), -1)
        except (KeyError, TypeError, ValueError, IndexError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"expected {path} to be a solution that Solution.save wrote: {error}") from error
        return cls(rules, known, torch.from_numpy(dense.reshape(-1)), **figures)


def problem(rules: Rules) -> tuple[int, int, bool, int]:
    """Return the rules as the operators take them: width, height, rule, a bit a piece.

    Raises:
        ValueError: If the rule is not one of `PLACEMENT_RULES`.
    """
    if rules.rule not in PLACEMENT_RULES:
        raise ValueError(f"expected the rule to be {' or '.join(PLACEMENT_RULES)}, got {rules.rule}")
    return rules.width, rules.height, rules.clear_on_overflow, sum(1 << piece for piece in rules.piece_set)
