"""Value iteration: the expected lines of perfect play from every board that can be reached.

A player may know one piece, the piece to be placed. Then a board has one value. It is a mean
over the pieces: for each piece, the lines that the best placement removes plus the value of the
resulting board (Bellman, "Dynamic Programming", 1957). If the player also knows the next piece,
a board has a value for each piece to be placed, which is a mean over the next pieces. Nothing
is discounted, because games end by themselves.
"""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernels.loader import Extension
from kernels.ops.philox import signed64
from kernels.support.checks import check_integer, check_uint64
from kernels.support.files import StrPath, write_bytes
from kernels.support.progress import progress
from tetris import Rules
from tetris.game.decisions import after_states
from tetris.game.features import AfterState
from tetris.game.piece_stream import packed_source
from tetris.game.rules import PIECE_LETTERS, PLACEMENT_RULES
from tetris.play.engines import describe_library, load

MOST_CELLS = 32
"""The maximum number of cells; a board is a 32-bit number."""

MOST_GAMES = 1_000_000_000
"""The maximum number of games that are played at once. Their lines take 8 GB."""

# The number of values of a board, by the number of known pieces. With two known pieces a board
# has a value for each of the seven pieces to be placed, and an eighth that is not used: an
# index is then a shift.
_VALUES = {1: 1, 2: 8}
_SOURCE = Path(__file__).parent / "iteration" / "iteration.cpp"
_CHUNK = 1 << 27  # The number of boards that are searched at once.
_REACHED = 1  # The mark of a board that play can reach.
_EXPANDED = 2  # The mark of a board whose next boards are marked, too.
# The factor has settled if its last two estimates differ by less than this share of its
# distance from 1.
_SETTLED = 0.1
_PAUSE = 2  # Rounds after an extrapolation until the slowest error determines the factor again.
_TOLERANCE = 1e-7  # The estimated relative error of the lines per game at which sweeps end.
_ROUNDING = 2.0**-53  # The relative error of a rounded value.
_MAX_ROUNDS = 100_000


def extension() -> Extension:
    """Return the library of value iteration."""
    return describe_library("tetris_solver", _SOURCE, "Tetris solver")


def operators(*, cuda: bool = False) -> Any:
    """Return the operators of value iteration; see `tetris.play.engines.load`."""
    return load(extension(), cuda=cuda)


@dataclass(frozen=True, eq=False)
class Solution:
    """Perfect play on a board.

    Attributes:
        rules: The game.
        pieces_known: The number of pieces that the player knows. 1: the piece to be placed; 2:
            also the next one.
        values: The expected lines from each board on, float64. With one piece known they have
            shape (2^cells,), with one value per board. With two pieces known they have shape
            (8 * 2^cells,), with eight adjacent values per board, one for each piece to be
            placed; the eighth is not used. Row r, column c of a board is bit r * width + c of
            its number. A board that play cannot reach has value 0.
        lines_per_game: The expected lines of perfect play from the empty board.
        error: The estimated error of ``lines_per_game``.
        boards: The number of boards that play can reach; see `reachable`.
        sweeps: The number of sweeps of value iteration.
        seconds: The time that the solution took, in seconds.
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
        """The attributes except for rules and values, to be written as JSON."""
        return {
            name: value for name, value in vars(self).items() if name not in ("rules", "values")
        }

    def value(self, rows: Sequence[int], piece: int = 0) -> float:
        """Return the value of a board: the expected lines of perfect play from it on.

        Args:
            rows: The rows of the board from the bottom; bit c of a row is column c.
            piece: The number of the piece to be placed. It is ignored if one piece is known.
        """
        # In the number of a board, row r, column c is bit r * width + c.
        index = sum(row << r * self.rules.width for r, row in enumerate(rows))
        if self.pieces_known == 2:
            index = index * _VALUES[2] + piece
        return float(self.values[index])

    def choose(
        self, rows: Sequence[int], piece: int, next_piece: int | None = None
    ) -> AfterState:
        """Return the after-state of the best placement, the first one among equals.

        Args:
            rows: The rows of the board from the bottom; bit c of a row is column c.
            piece: The number of the piece to be placed.
            next_piece: The number of the next piece, if two pieces are known; otherwise None.
        """
        if (next_piece is None) != (self.pieces_known == 1):
            raise ValueError(f"expected {self.pieces_known} known pieces")

        def total_lines(after: AfterState) -> float:
            if after.game_over:
                return after.lines
            return after.lines + self.value(after.rows, next_piece or 0)

        return max(after_states(tuple(rows), piece, self.rules), key=total_lines)

    def play(self, games: int, seed: int = 0) -> Tensor:
        """Play games with perfect play until they end; return the lines of each game.

        The games are played on the device of the values.

        Args:
            games: The number of games, at most 10^9. Game i has the pieces of stream i.
            seed: The seed of the pieces, 0 to 2^64 - 1.

        Returns:
            The lines of each game, int64, shape (games,).
        """
        games = check_integer("games", games, 1, MOST_GAMES)
        seed = check_uint64("seed", seed)
        lines = torch.empty(games, dtype=torch.int64, device=self.values.device)
        # The third value is whether the pieces come in bags. The solver does not support bags.
        packed_pieces, count, _ = packed_source(self.rules)
        play = operators(cuda=self.values.is_cuda).play
        play(self.values, lines, signed64(seed), *_problem(self.rules), packed_pieces, count)
        return lines

    def save(self, path: StrPath) -> int:
        """Write the solution as a NumPy archive; return the number of boards in it.

        The archive contains only the n boards with a value other than 0. The array ``boards``,
        uint32, has shape (n,). The array ``values``, float64, has shape (n,), or (n, 7) if two
        pieces are known. The text ``solution`` has the rules and the figures as JSON.
        """
        table = self.values.cpu().numpy().reshape(-1, _VALUES[self.pieces_known])
        # A row has the values of a board. If there are eight, the last one is not used.
        table = table[:, : len(PIECE_LETTERS)]
        boards = np.flatnonzero(table.any(axis=1))
        values = table[boards] if self.pieces_known == 2 else table[boards, 0]
        solution = json.dumps({"rules": self.rules.to_dict(), **self.figures})
        file = io.BytesIO()
        np.savez(file, solution=solution, boards=boards.astype(np.uint32), values=values)
        write_bytes(path, file.getvalue())
        return len(boards)

    @classmethod
    def load(cls, path: StrPath) -> Solution:
        """Read a solution from a file that `save` wrote.

        The file contains only the boards with a value other than 0. In the solution every
        board has a value.

        Raises:
            OSError: If the file cannot be opened.
            ValueError: If it holds no solution; the message names the file and the reason.
        """
        with Path(path).open("rb") as file:
            try:
                return cls._from_arrays(np.load(file, allow_pickle=False))
            except Exception as error:
                # Damaged files raise a dozen types of errors in zipfile, NumPy and json, some
                # of them without a message.
                reason = str(error) or type(error).__name__
                raise ValueError(
                    f"expected {path} to be a solution that Solution.save wrote: {reason}"
                ) from error

    @classmethod
    def _from_arrays(cls, arrays: Mapping[str, Any]) -> Solution:
        """Return the solution in the arrays that `save` writes.

        The array ``boards`` has the numbers of the boards with a value other than 0, the array
        ``values`` their values, and the text ``solution`` the rules and the figures as JSON.
        """
        solution = json.loads(str(arrays["solution"]))
        rules = Rules.from_dict(solution["rules"])
        _check_solvable(rules)
        # The number of a board has a bit for each cell.
        num_boards = 1 << rules.width * rules.height
        # A board has one value if the player knows one piece. If it also knows the next one, a
        # board has eight: one for each of the seven pieces to be placed, and an eighth that is
        # neither used nor saved.
        row_size = _VALUES[solution["pieces_known"]]
        num_saved = min(row_size, len(PIECE_LETTERS))
        # The operating system allocates only those pages of the zeros that are written.
        values = np.zeros((num_boards, row_size))
        values[arrays["boards"], :num_saved] = arrays["values"].reshape(-1, num_saved)
        solution["rules"] = rules
        solution["values"] = torch.from_numpy(values.reshape(-1))
        return cls(**solution)


def _check_solvable(rules: Rules) -> None:
    """Raise ValueError if the solver does not support the board, the pieces or the rule."""
    cells = rules.width * rules.height
    if cells > MOST_CELLS:
        raise ValueError(
            f"expected a board of at most {MOST_CELLS} cells, got {rules.board}: {cells}"
        )
    # A state of the solver is a board. If the pieces came from a bag, a state would also
    # contain the pieces that remain in the bag.
    if rules.pieces == "bag":
        raise ValueError(
            "expected pieces that are drawn uniformly: a bag would be part of the state"
        )
    # By the other rule, "original", a game can also end when the next piece appears.
    if rules.rule not in PLACEMENT_RULES:
        raise ValueError(
            f"expected the rule to be {' or '.join(PLACEMENT_RULES)}, got {rules.rule}"
        )


def _problem(rules: Rules) -> tuple[int, int, bool, int]:
    """Return the rules as the operators take them.

    Returns:
        The width and the height of the board; whether a placement above the board first removes
        its full rows; and the set of pieces, a bit per piece.
    """
    pieces = sum(1 << piece for piece in rules.piece_set)
    return rules.width, rules.height, rules.clear_on_overflow, pieces


def solve(rules: Rules, pieces_known: int = 1, device: str = "cpu") -> Solution:
    """Return perfect play: the values of all boards that can be reached.

    The operations on the float64 values have a fixed order. So the result is the same on every
    processor, and on a GPU.

    Sweeps are made in rounds (see `period`). Each round changes the lines per game, and from
    round to round the change is multiplied by a factor below 1. Once this factor has settled,
    the sum of all future changes is added at once, and the rounds go on from there (Aitken's
    extrapolation). The error is estimated from the change and the factor of the last round. In
    tests the estimate was up to four times too small.

    Args:
        rules: The rules of the game, with a board of at most 32 cells, and pieces that are
            drawn uniformly from some or all of the seven.
        pieces_known: The number of pieces that the player knows. 1: the piece to be placed; 2:
            also the next one.
        device: ``"cpu"`` or ``"cuda"``. A board of n cells takes 25 * 2^n bytes of memory, or
            193 * 2^n bytes if two pieces are known.

    Raises:
        ValueError: If an argument is out of range, or a player need never lose with these
            pieces.
        RuntimeError: If the values do not settle, or the memory is too small for the board.
        kernels.loader.BuildError: If the operators cannot be built.
    """
    check_integer("pieces_known", pieces_known, 1, 2)
    _check_solvable(rules)
    start_time = time.monotonic()
    boards = reachable(rules, device)
    if endless(boards, rules, pieces_known):
        raise ValueError(
            f"expected pieces that end a game, a player need never lose with {rules.pieces} "
            f"on {rules.board}"
        )
    size = _VALUES[pieces_known] << rules.width * rules.height
    values = torch.zeros(size, dtype=torch.float64, device=device)
    next_values = torch.zeros_like(values)
    old_values = torch.empty_like(values)
    sweep = operators(cuda=device == "cuda").sweep
    game = _problem(rules)
    lines = 0.0
    change = 0.0  # What the last round added to the lines.
    factor = 0.0  # The quotient of the last change and the change before it.
    error = 0.0
    rounds = 0  # The number of rounds since an extrapolation.
    accurate_rounds = 0  # The number of consecutive rounds with a small error.
    bar = progress(desc=f"solving {rules.board}", unit=" sweeps")
    for _ in range(_MAX_ROUNDS):
        old_values.copy_(values)
        for _ in range(period(rules)):
            sweep(boards, values, next_values, *game)
            values, next_values = next_values, values
        last_change = change
        change = lines_of(values, rules, pieces_known) - lines
        lines += change
        rounds += 1
        last_factor = factor
        factor = abs(change / last_change) if last_change else 1.0
        has_settled = rounds > _PAUSE and abs(factor - last_factor) < _SETTLED * (1 - factor)
        error, is_accurate = _estimate_error(lines, change, factor)
        accurate_rounds = accurate_rounds + 1 if rounds > _PAUSE and is_accurate else 0
        bar.set_postfix_str(f"{lines:,.6g} lines per game", refresh=False)
        bar.update(period(rules))
        if accurate_rounds == 2 or (change == 0.0 and torch.equal(values, old_values)):
            break
        if has_settled and not accurate_rounds:
            # values += (values - old_values) * factor / (1 - factor), the sum of the series.
            values.add_(old_values.sub_(values).mul_(factor / (factor - 1)))
            lines = lines_of(values, rules, pieces_known)
            change = 0.0
            rounds = 0
    else:
        raise RuntimeError(f"expected values to settle in {_MAX_ROUNDS:,} rounds of sweeps")
    del next_values, old_values
    bar.close()
    seconds = time.monotonic() - start_time
    return Solution(rules, pieces_known, values, lines, error, len(boards), bar.n, seconds)


def _estimate_error(lines: float, change: float, factor: float) -> tuple[float, bool]:
    """Return the estimated error of the lines after a round, and whether it is small enough.

    Args:
        lines: The lines per game after the round.
        change: What the round added to the lines.
        factor: The factor from the change of one round to the change of the next. The changes
            of all future rounds are a geometric series with this factor, and so are their
            rounding errors.
    """
    has_changed = change != 0
    rounding = _ROUNDING * lines  # The rounding error of one round.
    if factor >= 1:  # The series has no finite sum.
        error = math.inf if has_changed else rounding
        return error, False
    future_change = abs(change) * factor / (1 - factor)
    future_rounding = rounding / (1 - factor)
    error = max(future_change, future_rounding) if has_changed else rounding
    is_small = error <= max(_TOLERANCE * lines, future_rounding)
    return error, is_small


def period(rules: Rules) -> int:
    """Return the number of sweeps in a round.

    It is the least number of pieces after which a board can have the same number of full cells
    again: a piece adds four cells, and a line removes as many cells as the board has columns.
    Boards with different numbers of cells approach their limits alternately. So the change in a
    single sweep says little, but the change in a round shrinks steadily.
    """
    return rules.width // math.gcd(4, rules.width)


def reachable(rules: Rules, device: str) -> Tensor:
    """Return the numbers of all boards that play can reach from the empty board, sorted.

    The number of a board has one bit per cell: row r, column c is bit r * width + c. The
    numbers are unsigned 32-bit integers, returned as int32 with the same bits. If the set of
    pieces contains the mirror image of every piece, a board has the same value as its mirror
    image. Then only the smaller of their two numbers is returned.
    """
    expand = operators(cuda=device == "cuda").expand
    # This is a breadth-first search. Every board has a mark. It is 0 until the board is
    # reached, then `_REACHED`, and finally `_EXPANDED`, when the boards that follow from it by
    # one placement are marked.
    cells = rules.width * rules.height
    marks = torch.zeros(1 << cells, dtype=torch.uint8, device=device)
    marks[0] = _REACHED  # The empty board.
    has_new_boards = True
    while has_new_boards:
        has_new_boards = False
        # The iterator yields the boards in parts, and changes their marks to `_EXPANDED`. Then
        # the operator marks the new boards that follow from them as `_REACHED`.
        for boards in _boards_with_mark(marks, _REACHED):
            expand(boards, marks, *_problem(rules))  # `_problem` has the rules as numbers.
            has_new_boards |= len(boards) > 0
    return torch.cat(list(_boards_with_mark(marks, _EXPANDED)))


def endless(boards: Tensor, rules: Rules, pieces_known: int) -> bool:
    """Return whether a player need never lose from some board, whatever pieces come.

    Only if there is such a board, the lines of perfect play are infinite. Otherwise there is a
    number of pieces within which the player loses with a probability above zero, from any
    board. With all seven pieces there is no such board (Burgiel, "How to lose at Tetris",
    1997). With the piece O alone, on a board of even width, the empty board is one.
    """
    game = _problem(rules)
    # The mark of a board has a bit for each piece that the player can place there and never
    # lose. At first it has the bits of all pieces. Sweeps remove bits until no mark changes.
    all_pieces = game[-1]
    marks = boards.new_full((1 << rules.width * rules.height,), all_pieces, dtype=torch.uint8)
    changed = marks.new_ones(1)
    while changed:
        changed.zero_()
        operators(cuda=boards.is_cuda).survive(boards, marks, changed, pieces_known, *game)
    # The numbers of boards are unsigned, but stored as int32.
    return any(bool(marks[part.long() & 0xFFFFFFFF].any()) for part in boards.split(_CHUNK))


def lines_of(values: Tensor, rules: Rules, pieces_known: int) -> float:
    """Return the expected lines from the empty board on, before the first piece is known.

    With two pieces known this is the mean of the values for each first piece.
    """
    # The empty board has the number 0, so its values are the first ones.
    pieces = [0] if pieces_known == 1 else list(rules.piece_set)
    return math.fsum(values[pieces].tolist()) / len(pieces)


def _boards_with_mark(marks: Tensor, mark: int) -> Iterator[Tensor]:
    """Yield the numbers of the boards with a mark, as int32, in parts that fit into memory.

    If the mark is `_REACHED`, it is changed to `_EXPANDED`.
    """
    for first in range(0, len(marks), _CHUNK):
        part = marks[first : first + _CHUNK]
        boards = (part == mark).nonzero().squeeze(1)
        if mark == _REACHED:
            part[boards] = _EXPANDED
        yield (boards + first).to(torch.int32)
