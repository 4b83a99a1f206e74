"""Value iteration: the lines that perfect play clears, from every board that can be reached.

With one piece known the value of a board is the mean over the pieces of the best placement's lines and value
after it (Bellman, "Dynamic Programming", 1957). With the next piece known, too, a board has a value for each
piece to be placed, and the mean is over the piece after it. Nothing is discounted: games end by themselves.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.support.checks import check_integer
from tetris.game.rules import Rules
from tetris.play.devices import NATIVE, check_gpu
from tetris.solver.solution import KNOWN_PIECES, Solution, check_solvable, operators, problem

_CHUNK = 1 << 27  # boards that are looked through at once
_SETTLED = 0.1  # how far two estimates of the factor may differ, as a share of its distance from 1
_PAUSE = 2  # rounds after an extrapolation until the factor is that of the slowest error again
_TOLERANCE = 1e-7  # relative error of the lines per game, as estimated, at which the sweeps end
_ROUNDING = 2.0**-53  # relative error of a value that is rounded
_MOST_ROUNDS = 100_000


class Sweep(NamedTuple):
    """How far value iteration has come."""

    number: int
    lines_per_game: float
    error: float
    seconds: float


def solve(
    rules: Rules,
    pieces_known: int = 1,
    device: str = "cpu",
    progress: Callable[[Sweep], None] | None = None,
) -> Solution:
    """Return perfect play: the values of all boards that can be reached.

    Values are float64, rounded in a fixed order; the result is the same on every processor, and on a GPU.
    Sweeps go in rounds (see `period`), whose changes shrink by a factor that settles. Then all that is left
    to come is added at once, and rounds go on from there (Aitken's extrapolation). The error that is
    estimated from the change and the factor of the last round has been up to four times too small.

    Args:
        rules: A board of at most 32 cells, pieces drawn uniformly from some or all of the seven.
        pieces_known: 1, the piece to be placed, or 2, the next one, too.
        device: ``"cpu"`` or ``"cuda"``. n cells take 25 bytes times 2^n, 193 with two pieces known.
        progress: Called after every sweep.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, there is no GPU, or a player need never lose with these
            pieces.
        RuntimeError: If the values do not settle, or the memory is too small for the board.
        kernels.loader.BuildError: If the operators cannot be built.
    """
    check_integer("pieces_known", pieces_known, 1, 2)
    check_solvable(rules)
    if not isinstance(device, str) or device not in NATIVE:
        raise ValueError(f"expected device to be {' or '.join(NATIVE)}, got {device!r}")
    if device == "cuda":
        check_gpu("device cuda", "device cpu")
    began = time.monotonic()
    boards = reachable(rules, device)
    if endless(boards, rules, pieces_known):
        raise ValueError(
            f"expected pieces that end a game, a player need never lose with {rules.pieces} on {rules.board}"
        )
    size = (1 << rules.width * rules.height) * (1 if pieces_known == 1 else KNOWN_PIECES)
    values = torch.zeros(size, dtype=torch.float64, device=device)
    new, old = torch.zeros_like(values), torch.empty_like(values)
    op, game = operators(cuda=device == "cuda").sweep, problem(rules)
    lines = change = factor = error = 0.0
    rounds = good = 0  # rounds since an extrapolation; those of them in a row whose error is small
    for number in range(1, _MOST_ROUNDS + 1):
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
        if progress is not None:
            progress(Sweep(number * period(rules), lines, error, time.monotonic() - began))
        if good == 2 or (change == 0.0 and torch.equal(values, old)):
            break
        if settled and not good:
            values.add_(old.sub_(values).mul_(factor / (factor - 1)))
            lines, change, rounds = lines_of(values, rules, pieces_known), 0.0, 0
    else:
        raise RuntimeError(f"expected values to settle in {_MOST_ROUNDS:,} rounds of sweeps")
    del new, old
    sweeps, seconds = number * period(rules), time.monotonic() - began
    return Solution(rules, pieces_known, values, lines, error, _count(boards, rules), sweeps, seconds)


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
    expand, game = operators(cuda=device == "cuda").expand, problem(rules)
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
    on_gpu, game = boards.is_cuda, problem(rules)
    marks = boards.new_full((1 << rules.width * rules.height,), game[-1], dtype=torch.uint8)
    changed = marks.new_ones(1)
    while changed:
        changed.zero_()
        operators(cuda=on_gpu).survive(boards, marks, changed, pieces_known, *game)
    return any(bool(marks[part.long() & 0xFFFFFFFF].any()) for part in boards.split(_CHUNK))


def lines_of(values: Tensor, rules: Rules, pieces_known: int) -> float:
    """Return the lines to come of the empty board, before its piece is known."""
    if pieces_known == 1:
        return float(values[0])
    return math.fsum(values[list(rules.piece_set)].tolist()) / len(rules.piece_set)


def _marked(marks: Tensor, mark: int) -> Iterator[Tensor]:
    """Yield the boards with a mark, in parts; those with 1 have 2 from then on."""
    for first in range(0, len(marks), _CHUNK):
        part = marks[first : first + _CHUNK]
        boards = (part == mark).nonzero().squeeze(1)
        if mark == 1:
            part[boards] = 2
        yield (boards + first).to(torch.int32)


def _count(boards: Tensor, rules: Rules) -> int:
    """Return how many boards can be reached, mirror images included."""
    mirrored = {3: 4, 4: 3, 5: 6, 6: 5}
    if {mirrored.get(piece, piece) for piece in rules.piece_set} != set(rules.piece_set):
        return len(boards)
    width, same = rules.width, 0
    left = sum(1 << row * width for row in range(rules.height))  # the cells of the first column
    for part in boards.split(_CHUNK):
        differs = torch.zeros_like(part)
        for column in range(width // 2):
            differs |= (part >> column ^ part >> (width - 1 - column)) & left
        same += int((differs == 0).sum())
    return 2 * len(boards) - same
