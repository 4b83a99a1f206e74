"""A game with every placement, played in Python, which a notebook can show."""

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from kernels.support.checks import check_integer, check_uint64
from kernels.support.files import StrPath
from kernels.support.printable import counted, printable
from tetris.game.decisions import Pieces, Rows, play
from tetris.game.features import AfterState
from tetris.game.piece_stream import PieceStream
from tetris.game.policy import Lookahead
from tetris.game.positions import Board, cells_of, read_board, read_pieces
from tetris.game.rules import Rules
from tetris.play.controller import LinearController, resolve
from tetris.record.replay import Replay
from tetris.view.replay_page import player_page


@dataclass(frozen=True)
class PlayedGame:
    """The placements of a controller in a game or its first part."""

    controller: LinearController
    rules: Rules
    seed: int | None  # None if the pieces did not come from a seed.
    stream: int | None  # None without a seed.
    steps: tuple[AfterState, ...]  # The board after each placement.
    board: Rows = ()  # The stack before the first placement.
    lookahead: Lookahead = Lookahead.NONE  # Which later pieces the controller considered.

    @property
    def lines(self) -> int:
        """The number of lines removed."""
        return sum(step.lines for step in self.steps)

    @property
    def over(self) -> bool:
        """Whether the game ended."""
        return self.steps[-1].game_over

    @property
    def boards(self) -> npt.NDArray[np.int8]:
        """The board after each piece: shape (pieces, height, width), int8.

        A full cell is 1, and row 0 is the bottom. After a game over the stack may be higher
        than the board. Its cells above the board are not included.
        """
        rules = self.rules
        boards = [cells_of(step.rows, rules.width, rules.height) for step in self.steps]
        return np.stack(boards).astype(np.int8)

    def replay(self) -> Replay:
        """Return the game as a replay, which can be saved and watched."""
        boards = {0: self.board} if self.board else None
        return Replay.of(
            self.steps,
            self.rules,
            self.seed,
            self.stream,
            self.controller,
            boards,
            self.lookahead,
        )

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: a frame with a page that replays the game."""
        page = html.escape(player_page(self.replay(), self.controller.name))
        return (
            f'<iframe srcdoc="{page}" title="A game" '
            'style="width: 100%; height: 40rem; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        """Return a line that describes the game, without its steps."""
        name = printable(self.controller.name or self.controller.features)
        state = "over" if self.over else "unfinished"
        counts = f"{counted(self.lines, 'line')}, {counted(len(self.steps), 'piece')}, {state}"
        return f"<PlayedGame of {name} on {self.rules.board}: {counts}>"


def play_game(
    controller: LinearController | StrPath,
    seed: int = 1,
    *,
    rules: Rules | None = None,
    stream: int = 0,
    most_pieces: int = 1000,
    lookahead: Lookahead | str = Lookahead.NONE,
    board: Board | None = None,
    pieces: str | Sequence[str | int] | None = None,
) -> PlayedGame:
    """Play a game or its first pieces, and return every placement.

    `rollout` plays the same game on the stream. This function plays in Python, at about a
    thousand pieces per second.

    Examples:
        >>> game = play_game("dt20", pieces="IO", board=4 * "XXXXXXXXX. ")
        >>> game.lines
        4

    Args:
        controller: A controller, its name, its file, or the folder of a run; see `resolve`.
        seed: The seed of the pieces, an unsigned 64-bit integer.
        rules: The rules of the game; None: the rules of the controller.
        stream: The number of the seed's stream of pieces, an unsigned 64-bit integer.
        most_pieces: The maximum number of pieces to play, at least 1.
        lookahead: What decisions consider: ``"none"``, ``"preview"`` or ``"expectimax"``.
        board: The stack before the first piece: a drawing, a fumen string or an array; see
            `tetris.game.positions.read_board`.
        pieces: The pieces to play, letters such as ``"TSZ"`` or numbers, instead of the pieces
            of the seed. The game stops after the last one.

    Raises:
        OSError: If the controller's file cannot be read.
        ValueError: If the controller cannot play by the rules, or an argument is out of range.
    """
    resolved = resolve(controller)
    rules = rules or resolved.rules
    source = PieceStream(rules, check_uint64("seed", seed), check_uint64("stream", stream))
    most_pieces = check_integer("most_pieces", most_pieces, 1)
    if pieces is not None and rules.original:
        # By the original rule the game also depends on the piece after the last one, which only
        # a seed determines.
        raise ValueError(f"expected no pieces with the original rule, got {pieces!r}")
    player = resolved.player(rules, Lookahead(lookahead))
    sequence: Pieces = source if pieces is None else read_pieces(pieces, rules)
    rows = () if board is None else read_board(board, rules)
    # `play` begins another game after a game over. Keep only the placements of the first.
    placements = []
    for after_state in islice(play(sequence, player, rules, rows), most_pieces):
        placements.append(after_state)
        if after_state.game_over:
            break
    steps = tuple(placements)
    game = PlayedGame(
        resolved, rules, source.seed, source.stream, steps, rows, player.lookahead
    )
    return game if pieces is None else replace(game, seed=None, stream=None)
