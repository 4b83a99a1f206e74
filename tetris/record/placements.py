"""The placements of a piece on a board, as a controller values them: a table to be read."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tetris.game.decisions import (
    Rows,
    after_states,
    choose,
    pair_features,
    weighted_sums,
)
from tetris.game.features import AfterState, feature_values
from tetris.game.policy import Lookahead, Player
from tetris.game.positions import Board, read_board, read_cells, read_piece
from tetris.game.rules import PIECE_LETTERS, Rules
from tetris.play.controller import LinearController, resolve

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_SHOWN_ROWS = 5
_SHOWN_FEATURES = 3


@dataclass(frozen=True, eq=False, repr=False)
class PlacementTable:
    """Every placement of a piece on a board, as a controller values it.

    The arrays have an element, or a row, for each placement: by orientation, then by column
    from the left.

    Attributes:
        rows: The stack before the placement, from the bottom; bit c of a row is column c.
        rules: The rules of the game.
        player: The controller with its features and weights.
        next_piece: Number of the next piece if decisions consider it, else None.
        placements: The board after each placement.
        features: The features of each placement, shape (placements, features); with the next
            piece known those of the best pair of placements that it begins. NaN where the game
            ends.
        values: The weighted sums of the features; minus infinity where the game ends.
    """

    rows: Rows
    rules: Rules
    player: Player
    next_piece: int | None
    placements: tuple[AfterState, ...]
    features: Floats
    values: Floats

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features, in the order of their columns."""
        return self.player.names

    @cached_property
    def orientations(self) -> Integers:
        """Number of the orientation of each placement."""
        return self._integers(lambda after: after.orientation)

    @cached_property
    def columns(self) -> Integers:
        """Column of the left edge of each placement."""
        return self._integers(lambda after: after.column)

    @cached_property
    def lines(self) -> Integers:
        """Lines that each placement removes."""
        return self._integers(lambda after: after.lines)

    @property
    def ends_game(self) -> npt.NDArray[np.bool_]:
        """Whether each placement ends the game, with the next piece if that is known."""
        return np.isneginf(self.values)

    @cached_property
    def best_index(self) -> int:
        """Index of the placement that the controller chooses."""
        piece = self.placements[0].piece
        chosen = choose(self.rows, piece, self.player, self.rules, self.next_piece)
        return self.index_of(chosen)

    @property
    def best(self) -> AfterState:
        """The board after the placement that the controller chooses."""
        return self.placements[self.best_index]

    @cached_property
    def margins(self) -> Floats:
        """The value of each placement minus that of the best other one, NaN without one."""
        margins = map(self.margin, range(len(self.placements)))
        return np.array([np.nan if margin is None else margin for margin in margins])

    def margin(self, index: int) -> float | None:
        """Return the value of a placement minus that of the best other one; None without."""
        rival = self._rival(index)
        if rival is None or self.ends_game[index]:
            return None
        return float(self.values[index] - self.values[rival])

    @property
    def ranking(self) -> Integers:
        """Indices of the placements: the chosen one, then the others by falling value."""
        order = np.argsort(-self.values, kind="stable")
        return np.concatenate([[self.best_index], order[order != self.best_index]])

    def index_of(self, after: AfterState) -> int:
        """Return the index of a placement."""
        key = after.shape, after.column
        keys = [(placement.shape, placement.column) for placement in self.placements]
        return keys.index(key)

    def leads(self, index: int) -> Floats:
        """Return what each feature adds to the margin of a placement.

        It is the weighted value of the feature minus that of the best other placement; without
        such a placement it is the weighted value.
        """
        weighted: Floats = self.features * self.player.weights
        rival = self._rival(index)
        own: Floats = weighted[index]
        return own if rival is None else own - weighted[rival]

    def _rival(self, index: int) -> int | None:
        """Return the index of the best other placement that does not end the game."""
        values = self.values.copy()
        values[index] = -np.inf
        rival = int(values.argmax())
        return None if np.isneginf(values[rival]) else rival

    def _integers(self, number: Callable[[AfterState], int]) -> Integers:
        return np.array([number(after) for after in self.placements], dtype=np.int64)

    def __repr__(self) -> str:
        """Return the board and the best placements as text; see `text_lines`."""
        return "\n".join(self.text_lines())

    def text_lines(self, most: int = _SHOWN_ROWS) -> list[str]:
        """Return the board with the chosen placement, and a table of the best ones, as text.

        In the board ``X`` is a cell of the stack and ``#`` one of the piece. The last column of
        the table has the features that add most to the margin of a placement.

        Args:
            most: The most placements of the table.
        """
        piece = PIECE_LETTERS[self.best.piece]
        known = "" if self.next_piece is None else f", next {PIECE_LETTERS[self.next_piece]}"
        if self.player.lookahead is Lookahead.EXPECTIMAX:
            known = ", the best two compared by what may follow"
        title = (
            f"{piece} on {self.rules.board}{known}: orientation {self.best.orientation}, "
            f"column {self.best.column}"
        )
        header = "orientation  column  lines     value    margin  what decides"
        return [*self._drawing(), title, header, *map(self._line, self.ranking[:most])]

    def _drawing(self) -> list[str]:
        """Return the rows of the stack with the chosen placement, from the top."""
        after = self.best
        height = max(len(self.rows), after.landing_row + after.shape.height)
        stack = np.zeros(height, dtype=np.int64)
        stack[: len(self.rows)] = self.rows
        lines = []
        for y, row in reversed(list(enumerate(stack))):
            piece_row = 0
            if 0 <= y - after.landing_row < after.shape.height:
                piece_row = after.shape.rows[y - after.landing_row] << after.column
            line = ""
            for x in range(self.rules.width):
                if piece_row >> x & 1:
                    line += "#"
                else:
                    line += "X" if row >> x & 1 else "."
            lines.append(line)
        return lines

    def _line(self, index: int) -> str:
        """Return the line of a placement, with the features that add most to its margin."""
        place = f"{self.orientations[index]:>11}{self.columns[index]:>8}{self.lines[index]:>7}"
        if self.ends_game[index]:
            return f"{place}  the game ends"
        leads = self.leads(index)
        decisive = np.argsort(-np.abs(leads), kind="stable")[:_SHOWN_FEATURES]
        reasons = ", ".join(f"{self.names[i]} {leads[i]:+.2f}" for i in decisive if leads[i])
        return f"{place}{self.values[index]:>10.2f}{self.margins[index]:>+10.2f}  {reasons}"


def placement_table(
    rows: Rows, piece: int, player: Player, rules: Rules, next_piece: int | None = None
) -> PlacementTable:
    """Return the table of all placements of a piece.

    If every pair of placements ends the game, or the player does not look at the next piece,
    the next piece does not count.

    Args:
        rows: The stack, from the bottom; bit c of a row is column c.
        piece: Number of the piece.
        player: The controller.
        rules: The rules of the game.
        next_piece: Number of the next piece, if it is known.
    """
    if player.lookahead is not Lookahead.PREVIEW:
        next_piece = None
    placements = tuple(after_states(rows, piece, rules))
    features = np.full((len(placements), len(player.names)), np.nan)
    for index, after in enumerate(placements):
        if not after.game_over:
            known = _features(after, player, next_piece)
            if known is not None:
                features[index] = known
    values = np.nan_to_num(weighted_sums(features, player.weights), nan=-np.inf)
    if next_piece is not None and np.isneginf(values).all():
        return placement_table(rows, piece, player, rules)
    return PlacementTable(rows, rules, player, next_piece, placements, features, values)


def _features(after: AfterState, player: Player, next_piece: int | None) -> list[float] | None:
    """Return the features of a placement, or of the best pair that it begins.

    The result is None if every pair ends the game.
    """
    if next_piece is None:
        return feature_values(after, player.names)
    return pair_features(after, next_piece, player)


def best_placement(
    controller: LinearController | str | os.PathLike[str],
    board: Board,
    piece: str | int,
    next: str | int | None = None,  # noqa: A002 - the word of players
    *,
    rules: Rules | None = None,
    lookahead: Lookahead | str | None = None,
) -> PlacementTable:
    """Return how a controller values every placement of a piece on a board.

    Examples:
        >>> table = best_placement("dt20", 4 * "XXXXXXXXX. ", "I")
        >>> table.best.column, table.best.lines
        (9, 4)

    Args:
        controller: A controller, its name, its file, or the folder of a run; see `resolve`.
        board: A drawing, a fumen string or an array; see `tetris.game.positions.read_board`.
        piece: Letter or number of the piece to be placed.
        next: Letter or number of the next piece, if it is known.
        rules: The rules; None: those of the controller, with the width of the board.
        lookahead: What the decision considers: ``"none"``, ``"preview"`` or ``"expectimax"``;
            None: the next piece if there is one.

    Returns:
        A table, which prints as text; ``table.best`` is the chosen placement.

    Raises:
        OSError: If the controller's file cannot be read.
        ValueError: If the controller cannot play by the rules, or the board, a piece or the
            lookahead is not valid.
    """
    resolved = resolve(controller)
    if rules is None:
        width = read_cells(board).shape[1]
        rules = replace(resolved.rules, width=width)
    next_piece = None if next is None else read_piece(next)
    if lookahead is None:
        lookahead = Lookahead.NONE if next_piece is None else Lookahead.PREVIEW
    player = resolved.player(rules, Lookahead(lookahead))
    return placement_table(
        read_board(board, rules), read_piece(piece), player, rules, next_piece
    )
