"""The game and its decisions: falling pieces, the end of a game, the choice of a placement.

This module is the reference implementation; the fast engines match it bit for bit. A stack is a
tuple of rows from the bottom. Bit c of a row is column c. The top row is never empty, so the
empty board is ``()``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from tetris.game.features import (
    FEATURES,
    PLACEMENT_FEATURES,
    AfterState,
    column_heights,
)
from tetris.game.hidden_units import Floats
from tetris.game.piece_stream import PieceStream
from tetris.game.pieces import PIECES, Shape
from tetris.game.policy import Lookahead, Player
from tetris.game.rules import Rules

Pieces = PieceStream | Sequence[int]
Rows = tuple[int, ...]

# The value of a placement that ends the game: every other placement is preferred.
_LOST = float("-inf")

WORST_WEIGHT = 4
"""The additional weight of the worst next piece in a `prospect`.

Games end through bad pieces, so the worst piece says more about how long a game lasts than the
others do (benchmarks/notes/lookahead-tried.md).
"""


def landing_row(heights: list[int], shape: Shape, column: int) -> int:
    """Return the row in which the bottom of a piece comes to rest after a straight drop."""
    return max(heights[column + x] - bottom for x, bottom in enumerate(shape.bottoms))


def place(rows: Rows, shape: Shape, column: int, row: int, rules: Rules) -> AfterState:
    """Put a piece on the stack, remove the full rows, and return the board that results.

    A row is an integer. Bit c of a row of the stack is column c of the board; bit c of a row of
    the piece is column c of the piece.

    Args:
        rows: The rows of the stack from the bottom, without empty rows on top.
        shape: The piece in one of its orientations.
        column: The leftmost column of the piece.
        row: The lowest row of the piece.
        rules: The size of the board, and what happens if the piece reaches above the board.
            With ``clear_on_overflow`` full rows are removed first, and the game is over if the
            stack is still too high. Without it the game is over at once.

    Returns:
        The after-state. It also holds the number of removed lines, and the number of cells of
        the piece in these lines.
    """
    # Add empty rows up to the top of the piece. If the number is negative, none are added.
    top = row + shape.height
    missing_rows = top - len(rows)
    stack = list(rows) + [0] * missing_rows
    for y, piece_row in enumerate(shape.rows, start=row):
        stack[y] |= piece_row << column
    lines = 0
    removed_cells = 0
    # If the game is over at once, the rows that the piece has filled are neither removed nor
    # counted.
    if top <= rules.height or rules.clear_on_overflow:
        # Only the rows that the piece touches can have become full.
        for y, piece_row in enumerate(shape.rows, start=row):
            if stack[y] == rules.full_row:
                lines += 1
                removed_cells += piece_row.bit_count()
    if lines:
        stack = [stack_row for stack_row in stack if stack_row != rules.full_row]
    game_over = len(stack) > rules.height
    return AfterState(rules, shape, column, row, tuple(stack), lines, removed_cells, game_over)


def appears(rows: Rows, piece: int, rules: Rules) -> bool:
    """Return whether the cells in which a new piece appears are empty.

    The piece appears inside the board, in its first orientation. Its top is in the top row, and
    its left edge is in column (width - the piece's width) // 2. The stack must not be higher
    than the board.
    """
    shape = PIECES[piece][0]
    column = (rules.width - shape.width) // 2
    # If the stack is lower than the board, only some or none of the piece's rows are compared.
    top_rows = rows[rules.height - shape.height :]
    return not any(
        row & cells << column for row, cells in zip(top_rows, shape.rows, strict=False)
    )


def with_next(after: AfterState, next_piece: int | None) -> AfterState:
    """Return the after-state, with the game over if the original rule ends it.

    By that rule the game is over if the next piece has no room to appear. Without a known next
    piece the after-state is unchanged.
    """
    if not after.rules.original or after.game_over or next_piece is None:
        return after
    if appears(after.rows, next_piece, after.rules):
        return after
    return replace(after, game_over=True)


def after_states(rows: Rows, piece: int, rules: Rules) -> Iterator[AfterState]:
    """Yield the after-state of every placement, ordered by orientation and then by column."""
    heights = column_heights(rows, rules.width)
    for shape in PIECES[piece]:
        for column in range(rules.width - shape.width + 1):
            yield place(rows, shape, column, landing_row(heights, shape, column), rules)


def weighted_sums(values: Floats, weights: Floats) -> Floats:
    """Return the value of each after-state: the sum of its features times the weights.

    ``values`` has the shape (after-states, features). The sum is exact if the features are
    integers or halves of integers, and the weights come from
    `quantized_weights.played_weights`. So all engines choose the same placement, in whatever
    order they add.
    """
    sums: Floats = (values * weights).sum(-1)
    return sums


def choose(
    rows: Rows, piece: int, player: Player, rules: Rules, next_piece: int | None = None
) -> AfterState:
    """Return the after-state of the placement that a player chooses for a piece.

    The player chooses the placement with the greatest value; of equal values it takes the
    first. A placement that ends the game has the value minus infinity. If all placements end
    the game, the player chooses orientation 0 in column 0.

    With a preview the player knows the next piece. The value of a placement is then the value
    of this placement together with the best placement of the next piece, see `pair_value`. If
    every such pair ends the game, or if there is no next piece, the player decides as without a
    preview.

    With expectimax the player compares the two placements with the greatest values by their
    `prospect`, which considers all pieces that may come next. The player chooses the second
    placement if its prospect is greater.
    """
    candidates = list(after_states(rows, piece, rules))
    if player.lookahead is Lookahead.PREVIEW and next_piece is not None:
        pair_values = [pair_value(after, next_piece, player) for after in candidates]
        best = _index_of_greatest(pair_values)
        if best is not None:
            return candidates[best]
    values = _values(candidates, player)
    best = _index_of_greatest(values)
    if best is None:  # All placements end the game.
        return candidates[0]
    if player.lookahead is Lookahead.EXPECTIMAX:
        # Give the best placement the value minus infinity, to find the second-best one.
        values[best] = _LOST
        second = _index_of_greatest(values)
        if second is not None:
            best_prospect = prospect(candidates[best], player)
            if prospect(candidates[second], player) > best_prospect:
                best = second
    return candidates[best]


def prospect(after: AfterState, player: Player) -> tuple[int, float]:
    """Return how good a placement is if all pieces are equally likely to come next.

    The first number counts the next pieces with which the game goes on. The second number is
    the sum of `pair_value` over these pieces, plus `WORST_WEIGHT` times the least of them.
    Prospects are compared as tuples: the first number decides, and for equal first numbers the
    second. All pieces of the rules are considered, even those that the current bag no longer
    contains.
    """
    values = [pair_value(after, piece, player) for piece in after.rules.piece_set]
    surviving = [value for value in values if value > _LOST]
    worst = min(surviving, default=0.0)
    return len(surviving), sum(surviving) + WORST_WEIGHT * worst


def pair_value(after: AfterState, next_piece: int, player: Player) -> float:
    """Return the weighted sum of `pair_features`; -inf if every pair ends the game."""
    features = pair_features(after, next_piece, player)
    if features is None:
        return _LOST
    return weighted_sums(np.array([features], dtype=np.float64), player.weights).item()


def pair_features(after: AfterState, next_piece: int, player: Player) -> list[float] | None:
    """Return the features of two placements: this one, and the best one of the next piece.

    Most features describe the board after both placements. `PLACEMENT_FEATURES` are summed over
    both placements. Return None if every placement of the next piece ends the game.
    """
    if with_next(after, next_piece).game_over:
        return None
    candidates = list(after_states(after.rows, next_piece, after.rules))
    best = _index_of_greatest(_values(candidates, player))
    if best is None:
        return None
    features = player.features_of(candidates[best])
    for index, name in enumerate(player.names):
        if name in PLACEMENT_FEATURES:
            features[index] += FEATURES[name](after)
    return features


def _values(candidates: list[AfterState], player: Player) -> list[float]:
    """Return the value of each after-state, or minus infinity if the game is over."""
    surviving = [index for index, after in enumerate(candidates) if not after.game_over]
    values = [_LOST] * len(candidates)
    if surviving:
        features = [player.features_of(candidates[index]) for index in surviving]
        sums = weighted_sums(np.array(features, dtype=np.float64), player.weights)
        for index, value in zip(surviving, sums.tolist(), strict=True):
            values[index] = value
    return values


def _index_of_greatest(values: list[float]) -> int | None:
    """Return the index of the first greatest value; None if none is above minus infinity."""
    greatest = max(values)
    return values.index(greatest) if greatest > _LOST else None


def play(
    pieces: Pieces,
    player: Player,
    rules: Rules,
    rows: Rows = (),
    start: int = 0,
    first_piece: int | None = None,
) -> Iterator[AfterState]:
    """Play game after game, and yield the after-state of every decision.

    Decision t places piece t. When a game is over, the next one begins on an empty board.

    Args:
        pieces: An endless stream, or a list of pieces. The games stop after the last piece of a
            list.
        player: The controller.
        rules: The rules of the games.
        rows: The stack before the first decision: its rows from the bottom, as integers. Bit c
            of a row is column c.
        start: The number of the first decision.
        first_piece: The piece of the first decision; None: ``pieces[start]``.
    """
    piece = pieces[start] if first_piece is None else first_piece
    for next_t in count(start + 1):
        next_piece: int | None
        try:
            next_piece = pieces[next_t]
        except IndexError:  # The list has no more pieces.
            next_piece = None
        chosen = choose(rows, piece, player, rules, next_piece)
        # By the original rule the game is also over if the next piece has no room to appear.
        after = with_next(chosen, next_piece)
        yield after
        if next_piece is None:
            return
        rows = after.next_rows
        piece = next_piece
