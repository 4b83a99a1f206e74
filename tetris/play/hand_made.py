"""The hand-made player of SZ-Tetris. It is not a linear controller.

The strategy is from Szita and Szepesvari, "SZ-Tetris as a Benchmark for Studying Key Problems
of Reinforcement Learning" (ICML Workshop on Machine Learning and Games, 2010). The board is
divided into five lanes, each two columns wide, in which pieces stand upright. In a lane pieces
of one kind stack without holes. S goes to the two lanes on the left, and Z to the two lanes on
the right. One of the two kinds, the middle kind, may also use the middle lane.
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
_HIGH = 16  # If its own lanes are higher than this, a piece goes to the middle, whatever kind.
_NO_KIND = -1  # The middle kind before the first piece.


@dataclass
class HandMadePlayer:
    """Plays many games side by side. A game that has ended is removed.

    Attributes:
        columns: The boards, shape (games, width), int32. Bit y of a column is row y.
        middle_kind: The kind that may use the middle lane, `S` or `Z`: shape (games,).
        lines: The rows removed so far in each game, shape (games,).
    """

    columns: Tensor
    middle_kind: Tensor
    lines: Tensor

    @classmethod
    def begin(cls, games: int, device: str = "cpu") -> HandMadePlayer:
        """Return a player with new games, on a PyTorch device."""
        return cls(
            torch.zeros(games, RULES.width, dtype=torch.int32, device=device),
            torch.full((games,), _NO_KIND, device=device),
            torch.zeros(games, dtype=torch.int64, device=device),
        )

    def choose_lanes(self, kinds: Tensor) -> Tensor:
        """Choose the lane for the next piece of each game, and update the middle kinds.

        The board has five lanes, each two columns wide. S has lanes 0 and 1, and Z has lanes 3
        and 4. One kind at a time, the middle kind, may also use lane 2, in the middle. A piece
        goes to the lower lane of its kind. A piece of the middle kind goes to lane 2 instead if
        that is lower still. A piece of the other kind goes to lane 2 if both its lanes are
        higher than `_HIGH`. Its kind then becomes the middle kind.

        Args:
            kinds: The kind of the piece in each game, `S` or `Z`: shape (games,).

        Returns:
            The number of the lane in each game, shape (games,).
        """
        # A lane is as high as the higher one of its two columns: shape (games, lanes).
        heights = _column_heights(self.columns).unflatten(1, (_LANES, 2)).amax(-1)
        # The kind of the first piece is the first middle kind.
        self.middle_kind = torch.where(self.middle_kind == _NO_KIND, kinds, self.middle_kind)
        games = torch.arange(len(kinds), device=kinds.device)
        left_lane = torch.where(kinds == S, 0, 3)
        left_height = heights[games, left_lane]
        right_height = heights[games, left_lane + 1]
        # If both lanes of the kind are equally high, take the left one.
        lower_lane = left_lane + (right_height < left_height).long()
        lower_height = torch.minimum(left_height, right_height)
        is_middle_kind = kinds == self.middle_kind
        prefers_middle = is_middle_kind & (heights[:, _MIDDLE] < lower_height)
        becomes_middle_kind = ~is_middle_kind & (lower_height > _HIGH)
        self.middle_kind = torch.where(becomes_middle_kind, kinds, self.middle_kind)
        return torch.where(prefers_middle | becomes_middle_kind, _MIDDLE, lower_lane)

    def play(self, kinds: Tensor) -> Tensor:
        """Place a piece in each game, and remove the games that end with it.

        Args:
            kinds: The kind of the piece in each game, `S` or `Z`: shape (games,).

        Returns:
            The lines of the games that ended.
        """
        left_columns = 2 * self.choose_lanes(kinds)  # A lane is two columns wide.
        has_ended = torch.zeros_like(kinds, dtype=torch.bool)
        # All games with the same kind of piece drop it together. `games` has their numbers.
        for kind, shape in _UPRIGHT.items():
            games = (kinds == kind).nonzero().squeeze(1)
            dropped, overflows = _drop(self.columns[games], shape, left_columns[games])
            after, lines = _remove_full_rows(dropped, shape.height)
            self.columns[games] = after
            # The lines of the piece that ends a game do not count.
            self.lines[games] += lines.masked_fill(overflows, 0)
            has_ended[games] = overflows
        lines_of_ended = self.lines[has_ended]
        self.columns = self.columns[~has_ended]
        self.middle_kind = self.middle_kind[~has_ended]
        self.lines = self.lines[~has_ended]
        return lines_of_ended


def play_hand_made(games: int, seed: int = 1, device: str = "cpu") -> Tensor:
    """Let the hand-made player play games on random pieces, and return the lines of each game.

    The result has the shape (games,). The games are in the order in which they ended.
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
    """Return the height of each column: the position of its highest bit, counted from 1.

    `torch.frexp` returns this position as the exponent of the column as a float.
    """
    return torch.frexp(columns.float()).exponent.long()


def _drop(columns: Tensor, shape: Shape, left_columns: Tensor) -> tuple[Tensor, Tensor]:
    """Drop a piece on each board.

    Args:
        columns: The boards, shape (games, width). Bit y of a column is row y.
        shape: The piece in its orientation.
        left_columns: The leftmost column of the piece on each board, shape (games,).

    Returns:
        The boards with the piece at rest, before full rows are removed.
        Whether the piece reaches above the board, shape (games,).
    """
    heights = _column_heights(columns)
    games = torch.arange(len(columns), device=columns.device)
    # The row in which the piece would come to rest if one of its columns alone could touch the
    # stack. The piece comes to rest in the highest of these rows.
    rest_rows = []
    for x, bottom in enumerate(shape.bottoms):
        rest_rows.append(heights[games, left_columns + x] - bottom)
    row = torch.stack(rest_rows).amax(0)
    after = columns.clone()
    for x in range(shape.width):
        # Column x of the piece: bit y is its cell in row y.
        cells = sum((row_bits >> x & 1) << y for y, row_bits in enumerate(shape.rows))
        after[games, left_columns + x] |= (cells << row).int()
    return after, row + shape.height > RULES.height


def _remove_full_rows(columns: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Remove at most ``most`` full rows from each board.

    Returns:
        The boards, shape (games, width). Bit y of a column is row y.
        The number of rows removed from each board, shape (games,).
    """
    lines = torch.zeros(len(columns), dtype=torch.int64, device=columns.device)
    for _ in range(most):
        # Bit y of `full` is 1 if row y is full.
        full = columns[:, 0]
        for column in range(1, RULES.width):
            full = full & columns[:, column]
        lowest = full & -full  # The bit of the lowest full row; 0 if there is none.
        # The bits of all rows below it. If there is no full row, these are all rows.
        rows_below = (lowest - 1).unsqueeze(1)
        kept = columns & rows_below
        moved_down = columns >> 1 & ~rows_below
        columns = kept | moved_down
        lines += lowest != 0
    return columns, lines
