"""Placements on many boards at once, as tensors on any device, by the published rule.

A board is a row of columns: shape (boards, width), int32, bit y of a column is row y.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tetris.game.pieces import PIECES, Shape
from tetris.game.rules import Rules


@dataclass(frozen=True)
class Placements:
    """All placements of a piece on some boards.

    Attributes:
        actions: The number of each placement, orientation x width + column.
        columns: The boards after them: (boards, placements, width), int32, bit y is row y.
        lines: Rows removed, (boards, placements).
        ends_game: Whether the game ends, (boards, placements).
    """

    actions: list[int]
    columns: Tensor
    lines: Tensor
    ends_game: Tensor

    def of_boards(self, part: slice) -> Placements:
        """Return the placements on some of the boards."""
        return Placements(
            self.actions, self.columns[part], self.lines[part], self.ends_game[part]
        )


def place_everywhere(columns: Tensor, piece: int, rules: Rules) -> Placements:
    """Return all placements of a piece on boards."""
    actions = []
    parts = []
    for shape in PIECES[piece]:
        edges = torch.arange(rules.width - shape.width + 1, device=columns.device)
        actions += (shape.orientation * rules.width + edges).tolist()
        parts.append(place_shape(columns, shape, edges.expand(len(columns), -1), rules))
    after, lines, ends_game = (torch.cat(part, 1) for part in zip(*parts, strict=True))
    return Placements(actions, after, lines, ends_game)


def place_shape(
    columns: Tensor, shape: Shape, edges: Tensor, rules: Rules
) -> tuple[Tensor, Tensor, Tensor]:
    """Return columns, lines and ends of placements of a shape, as in `Placements`.

    A placement that ends the game has columns and lines, too, which mean nothing.

    Args:
        columns: The boards.
        shape: The piece as it was turned.
        edges: The columns of the left edge, (boards, placements), int64.
        rules: The size of the board.
    """
    heights = column_heights(columns)
    supports = []
    for x, bottom in enumerate(shape.bottoms):
        supports.append(heights.gather(1, edges + x) - bottom)
    rows = torch.stack(supports).amax(0)
    after = columns.unsqueeze(1).repeat(1, edges.shape[1], 1)
    for x in range(shape.width):
        cells = sum((row >> x & 1) << y for y, row in enumerate(shape.rows))
        index = (edges + x).unsqueeze(2)
        column = after.gather(2, index) | (cells << rows).int().unsqueeze(2)
        after.scatter_(2, index, column)
    lines = torch.zeros_like(rows)
    for _ in range(shape.height):
        full = after[..., 0]
        for column_number in range(1, rules.width):
            full = full & after[..., column_number]
        lowest = full & -full  # The lowest full row; 0 if there is none.
        rows_below = (lowest - 1).unsqueeze(2)  # All ones if there is no full row.
        after = after & rows_below | after >> 1 & ~rows_below
        lines += lowest != 0
    return after, lines, rows + shape.height > rules.height


def column_heights(columns: Tensor) -> Tensor:
    """Return the height of each column, which is the exponent of the column as a float."""
    return torch.frexp(columns.float()).exponent.long()
