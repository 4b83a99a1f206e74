"""A table of all placements of a piece on a board, with the controller's value of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kernels.support.files import StrPath
from tetris.game.decisions import (
    Rows,
    after_states,
    choose,
    pair_features,
    weighted_sums,
)
from tetris.game.features import AfterState
from tetris.game.hidden_units import Floats
from tetris.game.policy import Lookahead, Player
from tetris.game.positions import Board, cells_of, read_board, read_cells, read_piece
from tetris.game.rules import PIECE_LETTERS, Rules
from tetris.play.controller import LinearController, resolve

Integers = npt.NDArray[np.int64]

_SHOWN_ROWS = 5
_SHOWN_FEATURES = 3


@dataclass(frozen=True, eq=False, repr=False)
class PlacementTable:
    """Every placement of a piece on a board, as a controller values it.

    The arrays have an element, or a row, for each placement. The placements are sorted by
    orientation, then by column from the left.

    Attributes:
        rows: The stack before the placement, from the bottom; bit c of a row is column c.
        rules: The rules of the game.
        player: The controller with its features and weights.
        next_piece: The number of the next piece; None if decisions do not consider it.
        placements: The board after each placement.
        features: The features of each placement, shape (placements, features). If decisions
            consider the next piece, they are the features after the best placement of the next
            piece on the resulting board. NaN if the placement ends the game.
        values: The weighted sums of the features. Minus infinity if the placement ends the
            game.
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
        """The number of the orientation of each placement."""
        return self._integers(lambda after: after.orientation)

    @cached_property
    def columns(self) -> Integers:
        """The column of the left edge of each placement."""
        return self._integers(lambda after: after.column)

    @cached_property
    def lines(self) -> Integers:
        """The number of lines that each placement removes."""
        return self._integers(lambda after: after.lines)

    @property
    def ends_game(self) -> npt.NDArray[np.bool_]:
        """Whether the game ends, at the latest with the next piece if decisions consider it."""
        return np.isneginf(self.values)

    @cached_property
    def best_index(self) -> int:
        """The index of the placement that the controller chooses."""
        piece = self.placements[0].piece
        chosen = choose(self.rows, piece, self.player, self.rules, self.next_piece)
        return self.index_of(chosen)

    @property
    def best(self) -> AfterState:
        """The board after the placement that the controller chooses."""
        return self.placements[self.best_index]

    @cached_property
    def margins(self) -> Floats:
        """The `margin` of each placement; NaN instead of None."""
        margins = map(self.margin, range(len(self.placements)))
        return np.array([np.nan if margin is None else margin for margin in margins])

    def margin(self, index: int) -> float | None:
        """Return the value of a placement minus the value of the best other placement.

        The result is None if this placement, or every other one, ends the game.
        """
        rival = self._rival(index)
        if rival is None or self.ends_game[index]:
            return None
        return float(self.values[index] - self.values[rival])

    @property
    def ranking(self) -> Integers:
        """The indices of the placements: the chosen one, then the others, the best first."""
        order = np.argsort(-self.values, kind="stable")
        return np.concatenate([[self.best_index], order[order != self.best_index]])

    def index_of(self, after: AfterState) -> int:
        """Return the index of a placement."""
        return self.index_at(after.orientation, after.column)

    def index_at(self, orientation: int, column: int) -> int:
        """Return the index of a placement; ValueError if there is none."""
        indices = np.flatnonzero((self.orientations == orientation) & (self.columns == column))
        if not indices.size:
            raise ValueError(
                f"expected a placement of {PIECE_LETTERS[self.best.piece]} on "
                f"{self.rules.board}, got orientation {orientation}, column {column}"
            )
        return int(indices[0])

    def leads(self, index: int) -> Floats:
        """Return what each feature adds to the margin of a placement.

        This is the weighted value of the feature minus its weighted value for the best other
        placement. If every other placement ends the game, it is the weighted value alone.
        """
        weighted: Floats = self.features * self.player.weights
        rival = self._rival(index)
        own: Floats = weighted[index]
        return own if rival is None else own - weighted[rival]

    def _rival(self, index: int) -> int | None:
        """Return the index of the best other placement; None if all others end the game."""
        values = self.values.copy()
        values[index] = -np.inf
        rival = int(values.argmax())
        return None if np.isneginf(values[rival]) else rival

    def _integers(self, number: Callable[[AfterState], int]) -> Integers:
        """Return the array of the numbers that a function gives for the placements."""
        return np.array([number(after) for after in self.placements], dtype=np.int64)

    def __repr__(self) -> str:
        """Return the board and the best placements as text; see `text_lines`."""
        return "\n".join(self.text_lines())

    def text_lines(self, most: int = _SHOWN_ROWS, own: int | None = None) -> list[str]:
        """Return lines of text: the board with the chosen placement, and a table of the best.

        In the board ``X`` is a cell of the stack, and ``#`` is a cell of the piece. The last
        column of the table names the features that decide most between a placement and the best
        other one.

        Args:
            most: The maximum number of the best placements in the table.
            own: The index of another placement, which is added to the table and shown beside
                the chosen one; None: no other.
        """
        ranking = self.ranking.tolist()  # The indices of the placements, the best first.
        titles = [f"{self._describe_position()}: {_describe_place(self.best)}"]
        boards = [self.best]
        rows = ranking[:most]
        if own is not None:
            other = self.placements[own]
            number = ranking.index(own) + 1
            titles.append(
                f"yours, on the right: {_describe_place(other)}, number {number} of "
                f"{len(ranking)}"
            )
            boards.append(other)
            if own not in rows:
                rows.append(own)
        header = "orientation  column  lines     value    margin  what decides"
        table = map(self._line, rows)
        return [*self._lines_of_boards(boards), *titles, header, *table]

    def _describe_position(self) -> str:
        """Return the piece and the board, and what is known of the next piece."""
        known = ""
        if self.next_piece is not None:  # The values are those of both placements.
            known = f", valued with the best place of {PIECE_LETTERS[self.next_piece]} after it"
        if self.player.lookahead is Lookahead.EXPECTIMAX:
            known = ", the best two compared by what may follow"
        return f"{PIECE_LETTERS[self.best.piece]} on {self.rules.board}{known}"

    def _lines_of_boards(self, placements: Sequence[AfterState]) -> list[str]:
        """Return a board for each placement as lines of text, side by side."""
        height = max(len(self.rows), *(after.top for after in placements))
        boards = [self._board_lines(after, height) for after in placements]
        return ["   ".join(lines) for lines in zip(*boards, strict=True)]

    def _board_lines(self, after: AfterState, height: int) -> list[str]:
        """Return ``height`` rows of the board with a placement as text, the top row first.

        ``X`` is a cell of the stack, ``#`` a cell of the piece, and ``.`` an empty cell.
        """
        width = self.rules.width
        stack = cells_of(self.rows, width, height)
        # Put the rows of the piece where it comes to rest.
        rows_of_piece = [row << after.column for row in after.shape.rows]
        piece = cells_of((*[0] * after.landing_row, *rows_of_piece), width, height)
        characters = np.where(piece, "#", np.where(stack, "X", "."))
        return ["".join(row) for row in characters[::-1]]

    def _line(self, index: int) -> str:
        """Return the line of a placement, with the features that have the largest leads."""
        place = f"{self.orientations[index]:>11}{self.columns[index]:>8}{self.lines[index]:>7}"
        if self.ends_game[index]:
            return f"{place}  the game ends"
        leads = self.leads(index)
        decisive = np.argsort(-np.abs(leads), kind="stable")[:_SHOWN_FEATURES]
        reasons = ", ".join(f"{self.names[i]} {leads[i]:+.2f}" for i in decisive if leads[i])
        return f"{place}{self.values[index]:>10.2f}{self.margins[index]:>+10.2f}  {reasons}"


def _describe_place(after: AfterState) -> str:
    """Return the orientation and the column of a placement in words."""
    return f"orientation {after.orientation}, column {after.column}"


def placement_table(
    rows: Rows, piece: int, player: Player, rules: Rules, next_piece: int | None
) -> PlacementTable:
    """Return the table of all placements of a piece, with their features and values.

    A player with a preview also makes the best placement of the next piece. The features of the
    first placement are then those of the board after both. If every pair of placements ends the
    game, the table ignores the next piece.

    Args:
        rows: The stack, from the bottom; bit c of a row is column c.
        piece: The index of the piece in `PIECE_LETTERS`.
        player: The controller.
        rules: The rules of the game.
        next_piece: The index of the next piece; None if it is not known. A player without a
            preview ignores it.
    """
    if player.lookahead is not Lookahead.PREVIEW:
        next_piece = None
    placements = tuple(after_states(rows, piece, rules))
    # A row of NaN marks a placement that ends the game. Its value becomes minus infinity.
    features = np.full((len(placements), len(player.names)), np.nan)
    for index, after in enumerate(placements):
        if after.game_over:
            continue
        # The features of the last board that the player considers: the one after the placement
        # or, if the next piece is known, the one after the best placement of the next piece.
        final_features = (
            player.features_of(after)
            if next_piece is None
            else pair_features(after, next_piece, player)
        )
        if final_features is not None:  # Otherwise the game ends with any next placement.
            features[index] = final_features
    values = np.nan_to_num(weighted_sums(features, player.weights), nan=-np.inf)
    every_pair_ends_game = next_piece is not None and np.isneginf(values).all()
    if every_pair_ends_game:
        return placement_table(rows, piece, player, rules, next_piece=None)
    return PlacementTable(rows, rules, player, next_piece, placements, features, values)


def best_placement(
    controller: LinearController | StrPath,
    board: Board,
    piece: str | int,
    next: str | int | None = None,  # noqa: A002 - the players' word for it
    *,
    rules: Rules | None = None,
    lookahead: Lookahead | str | None = None,
) -> PlacementTable:
    """Return all placements of a piece as a table, whose ``best`` is the controller's choice.

    Examples:
        >>> table = best_placement("dt20", 4 * "XXXXXXXXX. ", "I")
        >>> table.best.column, table.best.lines
        (9, 4)

    Args:
        controller: A controller, its name, its file, or the folder of a run; see `resolve`.
        board: A drawing, whose rows are separated by blanks, the top row first; a fumen string;
            or an array. See `tetris.game.positions.read_board`.
        piece: The letter or number of the piece to be placed.
        next: The letter or number of the next piece; None if it is not known.
        rules: The rules of the game; None: the controller's rules, with the width of ``board``.
        lookahead: What the decision considers: ``"none"``, ``"preview"`` or ``"expectimax"``.
            None: ``"preview"`` if ``next`` is given, otherwise ``"none"``.

    Returns:
        The table, with the controller's value of each placement. ``print(table)`` shows it as
        text. ``table.best`` is the board after the placement that the controller chooses.

    Raises:
        OSError: If the controller's file cannot be read.
        ValueError: If the controller cannot play by the rules, or the board, a piece or the
            lookahead is not valid.
    """
    resolved = resolve(controller)
    if rules is None:
        _, width = read_cells(board).shape
        rules = replace(resolved.rules, width=width)
    next_piece = None if next is None else read_piece(next)
    if lookahead is None:
        lookahead = Lookahead.NONE if next_piece is None else Lookahead.PREVIEW
    player = resolved.player(rules, Lookahead(lookahead))
    return placement_table(
        read_board(board, rules), read_piece(piece), player, rules, next_piece
    )
