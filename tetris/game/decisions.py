"""The game and its decisions: falling pieces, the end of a game, the choice of a placement.

This module is the reference implementation; the fast engines match it bit for bit. A stack is a
tuple of rows from the bottom. Bit c of a row is column c. The top row is not empty, so that the
empty board is ``()``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import numpy.typing as npt

from tetris.game.features import (
    FEATURES,
    PLACEMENT_FEATURES,
    AfterState,
    column_heights,
    feature_values,
)
from tetris.game.piece_stream import PieceStream
from tetris.game.pieces import PIECES, Shape
from tetris.game.policy import Lookahead, Player
from tetris.game.rules import Rules

Pieces = PieceStream | Sequence[int]
Rows = tuple[int, ...]
Weights = npt.NDArray[np.float64]

# The value of a placement that ends the game: any other one is preferred.
_LOST = float("-inf")


def landing_row(heights: list[int], shape: Shape, column: int) -> int:
    """Return the row of a piece's bottom after a straight drop from above the stack."""
    return max(heights[column + x] - bottom for x, bottom in enumerate(shape.bottoms))


def place(rows: Rows, shape: Shape, column: int, row: int, rules: Rules) -> AfterState:
    """Put a piece on the stack, remove the full rows, and return the board that results.

    A row of the stack, or of the piece, is an integer whose bit c is the cell in column c.

    Args:
        rows: The rows of the stack from the bottom, without empty rows on top.
        shape: The piece in one of its orientations.
        column: The leftmost column of the piece.
        row: The lowest row of the piece.
        rules: The size of the board, and what happens if the piece ends above its top: with
            ``clear_on_overflow`` full rows are removed before the height of the stack is
            checked; without it the game is over at once.

    Returns:
        The after-state, which also counts the removed lines, and the cells of the piece that
        were in them.
    """
    # The stack must reach up to the top of the piece; a negative number adds no rows.
    missing_rows = row + shape.height - len(rows)
    stack = list(rows) + [0] * missing_rows
    for y, piece_row in enumerate(shape.rows, start=row):
        stack[y] |= piece_row << column
    lines = 0
    removed_cells = 0
    overflows = row + shape.height > rules.height
    if overflows and not rules.clear_on_overflow:
        return AfterState(
            rules, shape, column, row, tuple(stack), lines, removed_cells, game_over=True
        )
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
    """Return whether a new piece has room inside the board: whether its cells are empty.

    The piece appears in its first orientation, with its uppermost cells in the top row, in the
    middle columns: its left edge is (width - the piece's width) // 2. The stack must not be
    higher than the board.
    """
    shape = PIECES[piece][0]
    column = (rules.width - shape.width) // 2
    # The stack may be lower: then fewer rows, or none, are compared with the piece's.
    top_rows = rows[rules.height - shape.height :]
    return not any(
        row & cells << column for row, cells in zip(top_rows, shape.rows, strict=False)
    )


def with_next(after: AfterState, next_piece: int | None) -> AfterState:
    """Return an after-state; by the original rule a known next piece must appear."""
    if not after.rules.original or after.game_over or next_piece is None:
        return after
    if appears(after.rows, next_piece, after.rules):
        return after
    return replace(after, game_over=True)


def after_states(rows: Rows, piece: int, rules: Rules) -> Iterator[AfterState]:
    """Yield the after-state of every placement by orientation, then by column from the left."""
    heights = column_heights(rows, rules.width)
    for shape in PIECES[piece]:
        for column in range(rules.width - shape.width + 1):
            yield place(rows, shape, column, landing_row(heights, shape, column), rules)


def weighted_sums(values: npt.NDArray[np.float64], weights: Weights) -> npt.NDArray[np.float64]:
    """Return the value of each after-state: the sum of its features times the weights.

    The sum is exact if features are integers or halves of them, and weights are made by
    `quantized_weights.played_weights`: all engines choose the same placement, in whatever order
    they add. The values have shape (after-states, features).
    """
    sums: npt.NDArray[np.float64] = (values * weights).sum(-1)
    return sums


def choose(
    rows: Rows, piece: int, player: Player, rules: Rules, next_piece: int | None = None
) -> AfterState:
    """Return the board after the placement of a piece that a player chooses.

    The player chooses the placement of the greatest value, the first one of equals, among the
    placements that do not end the game. A placement that ends the game has the value minus
    infinity. If all of them end the game, the player chooses orientation 0 in column 0.

    With a preview the player knows the next piece. The value of a placement is then the value
    of the best pair of placements that it begins, see `pair_value`. If every pair ends the
    game, or there is no next piece, the player decides as if it had no preview.

    With expectimax, of depth two, the player compares the two placements of the greatest values
    by their `prospect`, an expectation over the next piece. It chooses the second one if that
    has a greater prospect.
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
        values[best] = _LOST  # So that the second-best placement has the greatest value.
        second = _index_of_greatest(values)
        if second is not None:
            best_prospect = prospect(candidates[best], player)
            if prospect(candidates[second], player) > best_prospect:
                best = second
    return candidates[best]


def prospect(after: AfterState, player: Player) -> tuple[int, float]:
    """Return how good a placement is with the pieces that may come next, all equally likely.

    The first number is the count of pieces with which the game goes on; the second number is
    the sum of `pair_value` over these pieces. Tuples are compared in this order. All pieces of
    the rules are considered, even if the current bag has no more of them.
    """
    values = [pair_value(after, piece, player) for piece in after.rules.piece_set]
    surviving = [value for value in values if value > _LOST]
    return len(surviving), sum(surviving)


def pair_value(after: AfterState, next_piece: int, player: Player) -> float:
    """Return the weighted sum of `pair_features`; -inf if every pair ends the game."""
    features = pair_features(after, next_piece, player)
    if features is None:
        return _LOST
    return weighted_sums(np.array([features], dtype=np.float64), player.weights).item()


def pair_features(after: AfterState, next_piece: int, player: Player) -> list[float] | None:
    """Return the features of two placements together: this one and the next piece's best one.

    Features of the board describe the board after both placements. `PLACEMENT_FEATURES` are the
    sums over both placements. Return None if every placement of the next piece ends the game.
    """
    if with_next(after, next_piece).game_over:
        return None
    candidates = list(after_states(after.rows, next_piece, after.rules))
    best = _index_of_greatest(_values(candidates, player))
    if best is None:
        return None
    features = feature_values(candidates[best], player.names)
    for index, name in enumerate(player.names):
        if name in PLACEMENT_FEATURES:
            features[index] += FEATURES[name](after)
    return features


def _values(candidates: list[AfterState], player: Player) -> list[float]:
    """Return the value of each after-state, minus infinity if the game is over."""
    surviving = [index for index, after in enumerate(candidates) if not after.game_over]
    values = [_LOST] * len(candidates)
    if surviving:
        features = [feature_values(candidates[index], player.names) for index in surviving]
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
    """Play game after game; yield the board after every decision.

    Decision t places piece t. After a game over the next game begins on an empty board.

    Args:
        pieces: A stream, which has no end, or a list of pieces, whose last piece ends the play.
        player: The controller.
        rules: The rules of the games.
        rows: The stack before the first decision: its rows from the bottom, as integers of
            bits; bit c is column c.
        start: The number of the first decision.
        first_piece: The piece of the first decision, if it is not ``pieces[start]``.
    """
    piece = pieces[start] if first_piece is None else first_piece
    for t in count(start + 1):
        next_piece: int | None
        try:
            next_piece = pieces[t]
        except IndexError:  # The list of pieces has ended.
            next_piece = None
        chosen = choose(rows, piece, player, rules, next_piece)
        # By the original rule the game also ends if the next piece has no room to appear.
        after = with_next(chosen, next_piece)
        yield after
        if next_piece is None:
            return
        rows = () if after.game_over else after.rows
        piece = next_piece
