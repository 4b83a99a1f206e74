"""Value iteration: the lines that perfect play clears, from every board that can be reached.

With one piece known the value of a board is the mean over the pieces of the best placement's lines and value
after it (Bellman, "Dynamic Programming", 1957). With the next piece known, too, a board has a value for each
piece to be placed, and the mean is over the piece after it. Nothing is discounted: games end by themselves.
"""

from __future__ import annotations

import io
import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernels.ops.philox import signed64
from kernels.support.checks import check_integer
from kernels.support.files import write_bytes
from kernels.support.progress import progress
from tetris.game.decisions import after_states
from tetris.game.features import AfterState
from tetris.game.piece_stream import packed_source
from tetris.game.rules import PIECE_LETTERS, PLACEMENT_RULES, Rules
from tetris.play.engines import load, operators_of

MOST_CELLS = 32
"""Cells of the largest board: one with a bit per cell is a number of 32 bits."""

MOST_GAMES = 1_000_000_000
"""The most games that are played at once: 8 GB of lines."""

_VALUES = {1: 1, 2: 8}  # of a board, by the number of known pieces; one of the eight is not used
_SOURCE = Path(__file__).parent / "iteration" / "iteration.cpp"
_CHUNK = 1 << 27  # boards that are looked through at once
_SETTLED = 0.1  # how far two estimates of the factor may differ, as a share of its distance from 1
_PAUSE = 2  # rounds after an extrapolation until the factor is that of the slowest error again
_TOLERANCE = 1e-7  # relative error of the lines per game, as estimated, at which the sweeps end
_ROUNDING = 2.0**-53  # relative error of a value that is rounded
_MOST_ROUNDS = 100_000


def operators(*, cuda: bool = False) -> Any:
    """Return the operators of value iteration; see `tetris.play.engines.load`."""
    return load(operators_of("tetris_solver", _SOURCE, "Tetris solver"), cuda=cuda)


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
        boards: How many boards play can reach, see `reachable`.
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

    @property
    def figures(self) -> dict[str, int | float]:
        """All but rules and values, for JSON."""
        return {name: value for name, value in vars(self).items() if name not in ("rules", "values")}

    def value(self, rows: Sequence[int], piece: int = 0) -> float:
        """Return the lines to come of a board, its rows from the bottom; ``piece`` if two are known."""
        board = sum(row << r * self.rules.width for r, row in enumerate(rows))
        return float(self.values[board if self.pieces_known == 1 else board * _VALUES[2] + piece])

    def choose(self, rows: Sequence[int], piece: int, next_piece: int | None = None) -> AfterState:
        """Return the best placement's after-state, by the reference engine; of several the first.

        Args:
            rows: Rows of the board from the bottom; bit c is column c.
            piece: To be placed.
            next_piece: The one after it if two pieces are known, else None.
        """
        if (next_piece is None) != (self.pieces_known == 1):
            raise ValueError(f"expected {self.pieces_known} known pieces")

        def lines(after: AfterState) -> float:
            return after.lines + (0.0 if after.game_over else self.value(after.rows, next_piece or 0))

        return max(after_states(tuple(rows), piece, self.rules), key=lines)

    def play(self, games: int, seed: int = 0) -> Tensor:
        """Play games to their ends by the rules of the engines, on the device of the values.

        Args:
            games: Number of games, at most 10^9; game i has the pieces of stream i.
            seed: Of the pieces, 0 to 2^64 - 1.

        Returns:
            Their lines, int64, shape (games,).
        """
        games = check_integer("games", games, 1, MOST_GAMES)
        seed = check_integer("seed", seed, 0, (1 << 64) - 1)
        lines = torch.empty(games, dtype=torch.int64, device=self.values.device)
        packed, count, _ = packed_source(self.rules)
        play = operators(cuda=self.values.is_cuda).play
        play(self.values, lines, signed64(seed), *_problem(self.rules), packed, count)
        return lines

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write a NumPy archive: boards that have a value, their values, rules and figures as JSON.

        ``boards`` is uint32, shape (n,); ``values`` float64, shape (n,), or (n, 7) if two pieces are known.

        Returns:
            The number n of boards that have a value other than 0.
        """
        rows = self.values.cpu().numpy().reshape(-1, _VALUES[self.pieces_known])[:, : len(PIECE_LETTERS)]
        boards = np.flatnonzero(rows.any(axis=1))
        values = rows[boards] if self.pieces_known == 2 else rows[boards, 0]
        about = {"rules": self.rules.to_dict(), **self.figures}
        file = io.BytesIO()
        np.savez(file, solution=json.dumps(about), boards=boards.astype(np.uint32), values=values)
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
                about = json.loads(str(arrays["solution"]))
                rules = Rules.from_dict(about["rules"])
                _check_solvable(rules)
                values = np.zeros((1 << rules.width * rules.height, _VALUES[about["pieces_known"]]))
                known = values[:, : len(PIECE_LETTERS)]
                known[arrays["boards"]] = arrays["values"].reshape(-1, known.shape[1])
                return cls(**{**about, "rules": rules, "values": torch.from_numpy(values.reshape(-1))})
            except Exception as error:  # zipfile, NumPy and json have a dozen for damaged bytes
                reason = str(error) or type(error).__name__
                raise ValueError(
                    f"expected {path} to be a solution that Solution.save wrote: {reason}"
                ) from error


def _check_solvable(rules: Rules) -> None:
    """Raise ValueError where a board is too large, or the rules are others than the solver's."""
    cells = rules.width * rules.height
    if cells > MOST_CELLS:
        raise ValueError(f"expected a board of at most {MOST_CELLS} cells, got {rules.board}: {cells}")
    if rules.pieces == "bag":
        raise ValueError("expected pieces that are drawn uniformly: a bag would be part of the state")
    if rules.rule not in PLACEMENT_RULES:
        raise ValueError(f"expected the rule to be {' or '.join(PLACEMENT_RULES)}, got {rules.rule}")


def _problem(rules: Rules) -> tuple[int, int, bool, int]:
    """Return the rules as the operators take them: width, height, rule, a bit per piece."""
    return rules.width, rules.height, rules.clear_on_overflow, sum(1 << piece for piece in rules.piece_set)


def solve(rules: Rules, pieces_known: int = 1, device: str = "cpu") -> Solution:
    """Return perfect play: the values of all boards that can be reached.

    Values are float64, rounded in a fixed order; the result is the same on every processor, and on a GPU.
    Sweeps go in rounds (see `period`), whose changes shrink by a factor that settles. Then all that is left
    to come is added at once, and rounds go on from there (Aitken's extrapolation). The error that is
    estimated from the change and the factor of the last round has been up to four times too small.

    Args:
        rules: A board of at most 32 cells, pieces drawn uniformly from some or all of the seven.
        pieces_known: 1, the piece to be placed, or 2, the next one, too.
        device: ``"cpu"`` or ``"cuda"``. n cells take 25 bytes times 2^n, 193 with two pieces known.

    Raises:
        ValueError: If an argument is out of range, or a player need never lose with these pieces.
        RuntimeError: If the values do not settle, or the memory is too small for the board.
        kernels.loader.BuildError: If the operators cannot be built.
    """
    check_integer("pieces_known", pieces_known, 1, 2)
    _check_solvable(rules)
    began = time.monotonic()
    boards = reachable(rules, device)
    if endless(boards, rules, pieces_known):
        raise ValueError(
            f"expected pieces that end a game, a player need never lose with {rules.pieces} on {rules.board}"
        )
    size = _VALUES[pieces_known] << rules.width * rules.height
    values = torch.zeros(size, dtype=torch.float64, device=device)
    new, old = torch.zeros_like(values), torch.empty_like(values)
    op, game = operators(cuda=device == "cuda").sweep, _problem(rules)
    lines = change = factor = error = 0.0
    rounds = good = 0  # rounds since an extrapolation; those of them in a row whose error is small
    bar = progress(desc=f"solving {rules.board}", unit=" sweeps", leave=False)
    for _ in range(_MOST_ROUNDS):
        old.copy_(values)
        for _ in range(period(rules)):
            op(boards, values, new, *game)
            values, new = new, values
        before, change = change, lines_of(values, rules, pieces_known) - lines
        lines, rounds = lines + change, rounds + 1
        previous, factor = factor, abs(change / before) if before else 1.0
        settled = rounds > _PAUSE and abs(factor - previous) < _SETTLED * (1 - factor)
        rounding = _ROUNDING * lines / (1 - factor) if factor < 1 else math.inf
        left = abs(change) * factor / (1 - factor) if factor < 1 else math.inf
        error = max(left, rounding) if change else _ROUNDING * lines
        small = factor < 1 and error <= max(_TOLERANCE * lines, rounding)
        good = good + 1 if rounds > _PAUSE and small else 0
        bar.set_postfix_str(f"{lines:,.6g} lines per game", refresh=False)
        bar.update(period(rules))
        if good == 2 or (change == 0.0 and torch.equal(values, old)):
            break
        if settled and not good:
            values.add_(old.sub_(values).mul_(factor / (factor - 1)))
            lines, change, rounds = lines_of(values, rules, pieces_known), 0.0, 0
    else:
        raise RuntimeError(f"expected values to settle in {_MOST_ROUNDS:,} rounds of sweeps")
    del new, old
    bar.close()
    sweeps, seconds = bar.n, time.monotonic() - began
    return Solution(rules, pieces_known, values, lines, error, len(boards), sweeps, seconds)


def period(rules: Rules) -> int:
    """Return after how many pieces the number of a board's cells has the same remainder by its width again.

    A piece adds four cells and a line takes as many as the board has columns. So values approach their limit
    in turns: the change of one sweep says little, that of as many sweeps shrinks steadily.
    """
    return rules.width // math.gcd(4, rules.width)


def reachable(rules: Rules, device: str) -> Tensor:
    """Return the boards that play can reach, ascending: int32, the bits of unsigned numbers.

    Of two boards that mirror each other there is the one with the lesser number, if the pieces are the same
    in a mirror.
    """
    expand, game = operators(cuda=device == "cuda").expand, _problem(rules)
    marks = torch.zeros(1 << rules.width * rules.height, dtype=torch.uint8, device=device)
    marks[0] = 1
    found = 1
    while found:
        found = 0
        for boards in _marked(marks, 1):
            expand(boards, marks, *game)
            found += len(boards)
    return torch.cat(list(_marked(marks, 2)))


def endless(boards: Tensor, rules: Rules, pieces_known: int) -> bool:
    """Return whether there is a board from which a player need never lose, whichever pieces come.

    Then and only then the lines of perfect play are infinite: without such a board there is a number of
    pieces within which he loses with a probability above zero, from any board. With all seven there is none
    (Burgiel, "How to lose at Tetris", 1997), with the letter O alone on an even width the empty board is one.
    """
    on_gpu, game = boards.is_cuda, _problem(rules)
    marks = boards.new_full((1 << rules.width * rules.height,), game[-1], dtype=torch.uint8)
    changed = marks.new_ones(1)
    while changed:
        changed.zero_()
        operators(cuda=on_gpu).survive(boards, marks, changed, pieces_known, *game)
    return any(bool(marks[part.long() & 0xFFFFFFFF].any()) for part in boards.split(_CHUNK))


def lines_of(values: Tensor, rules: Rules, pieces_known: int) -> float:
    """Return the lines to come of the empty board, before its piece is known."""
    found = values[:1] if pieces_known == 1 else values[list(rules.piece_set)]
    return math.fsum(found.tolist()) / len(found)


def _marked(marks: Tensor, mark: int) -> Iterator[Tensor]:
    """Yield the boards with a mark, in parts; those with 1 have 2 from then on."""
    for first in range(0, len(marks), _CHUNK):
        part = marks[first : first + _CHUNK]
        boards = (part == mark).nonzero().squeeze(1)
        if mark == 1:
            part[boards] = 2
        yield (boards + first).to(torch.int32)
