"""Playing by hand: a race with the controller on the same pieces, with hints of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tetris import LinearController, Lookahead, Rules
from tetris.game.decisions import Pieces, choose, landing_row, place, play, with_next
from tetris.game.features import AfterState, column_heights
from tetris.game.pieces import PIECES
from tetris.game.rules import PIECE_LETTERS
from tetris.record.explanation import explain
from tetris.record.numbers import counted
from tetris.view.game_view import GameTracker, Scene, board_kinds, scene_kinds
from tetris.view.terminal import IDLE, Terminal

FOOTER = "arrows move, turn, lower   space drop   c hold   h hint   q quit"


@dataclass
class HumanPlayer:
    """A person at the keyboard; the controller plays the same pieces beside it, one whenever the person does.

    A piece can be kept for later once before it is placed, and comes back in exchange for another one; not by
    the original rule, which asks where the next piece of the stream appears. The controller keeps none.
    """

    terminal: Terminal
    rules: Rules
    pieces: Pieces
    controller: LinearController
    title: list[str]
    lookahead: Lookahead = Lookahead.NONE
    played: list[AfterState] = field(default_factory=list)  # by the person, for a replay
    in_order: bool = True  # no piece was kept
    _drawn: int = 0  # pieces that have come
    _held: int | None = None
    _hint: bool = False
    _over: tuple[str, ...] = ()  # what is said at the end of a game, until a key is pressed

    def __post_init__(self) -> None:
        """Set up an empty board; nothing is shown yet."""
        self.tracker, self.rival = GameTracker(self.rules), GameTracker(self.rules)  # the controller's
        self._rival_name = self.controller.name or "controller"
        self._player = self.controller.player(self.rules, self.lookahead)
        self._rival_plays = play(self.pieces, self._player, self.rules)
        self._began = time.monotonic()
        self._take()

    def summary(self) -> str:
        """Return what was played, in a line."""
        tracker, seconds = self.tracker, time.monotonic() - self._began
        return (
            f"{counted(tracker.lines, 'line')} with {counted(tracker.pieces, 'piece')} in {seconds:.0f} s "
            f"({tracker.pieces / max(seconds, 1e-9):.1f} pieces per second), games over: {tracker.games:,}; "
            f"{self._rival_name} with the same pieces: {counted(self.rival.lines, 'line')}"
        )

    def run(self) -> None:
        """Play until the quit key, the only one while the window is too small for the board."""
        while True:
            shown = self._draw()
            for key in self.terminal.keys(IDLE):
                if key in ("q", "Q"):
                    return
                if shown:
                    self._press(key)

    def _press(self, key: str) -> None:
        shape = self._after.shape
        if self._over:
            self._over = ()
        elif key in ("left", "right", "a", "d"):
            self._put(shape.orientation, self._after.column + (1 if key in ("right", "d") else -1))
        elif key in ("up", "w"):
            self._put((shape.orientation + 1) % len(PIECES[shape.piece]), self._after.column)
        elif key in ("down", "s"):
            self._lower()
        elif key in (" ", "\n"):
            self._drop()
        elif key in ("c", "C"):
            self._hold()
        elif key in ("h", "H"):
            self._hint = not self._hint

    def _take(self, piece: int | None = None, may_hold: bool = True) -> None:
        """Take a piece into hand, None for the next one: it waits above the board."""
        if piece is None:
            piece, self._drawn = self.pieces[self._drawn], self._drawn + 1
        self._piece, self._may_hold = piece, may_hold
        self._hint = False
        self._row: int | None = None  # None: above the board
        self._put(0, (self.rules.width - PIECES[piece][0].width) // 2)

    def _put(self, orientation: int, column: int) -> None:
        """Turn and move the piece, inside the board; not to where it could not have fallen straight down."""
        shape = PIECES[self._piece][orientation]
        column = min(max(column, 0), self.rules.width - shape.width)
        rows = self.tracker.rows
        row = landing_row(column_heights(rows, self.rules.width), shape, column)
        if self._row is None or row <= self._row:
            self._after = place(rows, shape, column, row, self.rules)

    def _lower(self) -> None:
        """Lower the piece by a row; where it rests, place it."""
        row = self._height()
        if row <= self._after.landing_row:
            self._drop()
        else:
            self._row = row - 1

    def _height(self) -> int:
        """The row of the piece's bottom. If the stack reaches the top, it is at rest from the beginning."""
        return max(self.rules.height, self._after.landing_row) if self._row is None else self._row

    def _hold(self) -> None:
        """Keep the piece for later, and take the one that was kept, or the next one."""
        if self._may_hold and not self.rules.original:
            held, self._held = self._held, self._piece
            self.in_order = False
            self._take(held, may_hold=False)

    def _drop(self) -> None:
        self._after = with_next(self._after, self.pieces[self._drawn])
        scene = self._scene()
        self.tracker.carry_out(scene)
        self.played.append(self._after)
        self.rival.carry_out(self.rival.scene(next(self._rival_plays), None))
        if self._after.game_over:
            self._over = f"GAME OVER: {counted(scene.game_lines, 'line')}", "any key: the next game"
            self._held = None
        self._take()

    def _scene(self) -> Scene:
        return self.tracker.scene(self._after, self.pieces[self._drawn])

    def _draw(self) -> bool:
        """Draw, and return whether there is room for the board."""
        scene, rows = self._scene(), self.tracker.rows
        panel = [
            *self.title,
            f"hold {'-' if self._held is None else PIECE_LETTERS[self._held]}",
            f"lines {self.tracker.lines:,}   {self._rival_name} {self.rival.lines:,}",
            f"pieces {self.tracker.pieces:,}   games over {self.tracker.games:,}",
            *(self._over or ("",)),
            "",
        ]
        hint = explanation = None
        if self._hint:
            hint = choose(rows, self._piece, self._player, self.rules, scene.next_piece)
            explanation = explain(rows, self._after, self._player, scene.next_piece)
        boards = [(scene_kinds(scene, self._height(), ghost=self.terminal.depth > 0, hint=hint), "you")]
        if not self._hint:  # its table needs the room of the other board
            boards.append((board_kinds(self.rival.cells, self.rules.height), self._rival_name))
        return self.terminal.show(scene, boards, panel, explanation, FOOTER)
