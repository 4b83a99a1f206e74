"""The hand-made player of SZ-Tetris, which no linear controller is.

Its strategy is that of Szita and Szepesvari, "SZ-Tetris as a Benchmark for Studying Key
Problems of Reinforcement Learning" (ICML Workshop on Machine Learning and Games, 2010). The
board is five lanes, each two columns wide, in which pieces stand upright. Pieces of one kind
stack in a lane without a hole: S on the left, Z on the right, and one of them, the kind of the
middle, in the middle lane, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tetris.game.pieces import PIECES, Shape
from tetris.game.rules import PIECE_LETTERS, Rules

RULES = Rules(10, 20, pieces="SZ")
S, Z = 0, 1
"""The kinds of pieces."""

_UPRIGHT = {kind: PIECES[PIECE_LETTERS.index(letter)][0] for kind, letter in enumerate("SZ")}
_LANES = 5
_MIDDLE = 2
_HIGH = 16  # From a lane that is higher, a piece goes to the middle, whatever its kind.
_NO_KIND = -1  # The kind of the middle, until the first piece falls.


@dataclass
class HandMadePlayer:
    """Plays games side by side; a game that has ended is taken out.

    Attributes:
        columns: The boards, shape (games, width), int32; bit y of a column is row y.
        middle_kind: The kind that may always go to the middle lane, `S` or `Z`: (games,).
        lines: Rows removed, (games,).
    """

    columns: Tensor
    middle_kind: Tensor
    lines: Tensor

    @classmethod
    def begin(cls, games: int, device: str = "cpu") -> HandMadePlayer:
        """Return games that begin, on a device of PyTorch."""
        return cls(
            torch.zeros(games, RULES.width, dtype=torch.int32, device=device),
            torch.full((games,), _NO_KIND, device=device),
            torch.zeros(games, dtype=torch.int64, device=device),
        )

    def choose_lanes(self, kinds: Tensor) -> Tensor:
        """Return the lane for the piece of each game, and update the kind of the middle."""
        lane_heights = _column_heights(self.columns).unflatten(1, (_LANES, 2)).amax(-1)
        self.middle_kind = torch.where(self.middle_kind == _NO_KIND, kinds, self.middle_kind)
        # S has lanes 0 and 1, Z has lanes 3 and 4; of equal heights the first lane is taken.
        first_lane = torch.where(kinds == S, 0, 3)
        first_height = lane_heights.gather(1, first_lane.unsqueeze(1)).squeeze(1)
        second_height = lane_heights.gather(1, first_lane.unsqueeze(1) + 1).squeeze(1)
        lane = first_lane + (second_height < first_height).long()
        height = torch.minimum(first_height, second_height)
        may_take_middle = kinds == self.middle_kind
        takes_middle = may_take_middle & (lane_heights[:, _MIDDLE] < height)
        gives_up = ~may_take_middle & (height > _HIGH)
        self.middle_kind = torch.where(gives_up, kinds, self.middle_kind)
        return torch.where(takes_middle | gives_up, _MIDDLE, lane)

    def play(self, kinds: Tensor) -> Tensor:
        """Place a piece of a kind in each game; return the lines of games that have ended."""
        left_columns = 2 * self.choose_lanes(kinds)
        has_ended = torch.zeros_like(kinds, dtype=torch.bool)
        for kind, shape in _UPRIGHT.items():
            games = (kinds == kind).nonzero().squeeze(1)
            dropped, overflows = _drop(self.columns[games], shape, left_columns[games])
            after, lines = _remove_full_rows(dropped, shape.height)
            self.columns[games] = after
            self.lines[games] += lines.masked_fill(overflows, 0)
            has_ended[games] = overflows
        lines_of_ended = self.lines[has_ended]
        self.columns = self.columns[~has_ended]
        self.middle_kind = self.middle_kind[~has_ended]
        self.lines = self.lines[~has_ended]
        return lines_of_ended


def play_hand_made(games: int, seed: int = 1, device: str = "cpu") -> Tensor:
    """Return the lines of games of the hand-made player on random pieces, shape (games,).

    The games are in the order in which they end.
    """
    generator = torch.Generator(device).manual_seed(seed)
    player = HandMadePlayer.begin(games, device)
    lines = []
    while len(player.lines):
        shape = player.lines.shape
        kinds = torch.randint(2, shape, generator=generator, device=device)
        lines.append(player.play(kinds))
    return torch.cat(lines)


def _column_heights(columns: Tensor) -> Tensor:
    """Return the height of each column, which is the exponent of the column as a float."""
    return torch.frexp(columns.float()).exponent.long()


def _drop(columns: Tensor, shape: Shape, left_columns: Tensor) -> tuple[Tensor, Tensor]:
    """Return the boards with a piece at rest, and whether it reaches above the board."""
    heights = _column_heights(columns)
    games = torch.arange(len(columns), device=columns.device)
    supports = []
    for x, bottom in enumerate(shape.bottoms):
        supports.append(heights[games, left_columns + x] - bottom)
    row = torch.stack(supports).amax(0)
    after = columns.clone()
    for x in range(shape.width):
        cells = sum((row_bits >> x & 1) << y for y, row_bits in enumerate(shape.rows))
        after[games, left_columns + x] |= (cells << row).int()
    return after, row + shape.height > RULES.height


def _remove_full_rows(columns: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Return boards without their full rows, of which there are at most ``most``, and lines."""
    lines = torch.zeros(len(columns), dtype=torch.int64, device=columns.device)
    for _ in range(most):
        full = columns[:, 0]
        for column in range(1, RULES.width):
            full = full & columns[:, column]
        lowest = full & -full  # The lowest full row; 0 if there is none.
        rows_below = (lowest - 1).unsqueeze(1)  # All ones if there is no full row.
        columns = columns & rows_below | columns >> 1 & ~rows_below
        lines += lowest != 0
    return columns, lines
