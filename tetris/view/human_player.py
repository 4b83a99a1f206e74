"""Playing by hand: the same game and pieces, with hints of the controller."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tetris import LinearController, Rules
from tetris.explanation import decisions, explain
from tetris.features import AfterState, column_heights
from tetris.game import Pieces, choose, landing_row, place
from tetris.pieces import PIECES
from tetris.view.game_view import GameTracker, Scene
from tetris.view.screen import IDLE, PANEL_HEAD, Look, explanation_lines, screen
from tetris.view.terminal import Terminal

FOOTER = "arrows move, turn   space drop   h hint   q quit"


class HumanPlayer:
    """A person at the keyboard; the controller plays the same pieces for comparison.

    Args:
        terminal: The terminal, entered.
        rules: The rules of the games.
        pieces: ``pieces[t]`` is the piece of decision t.
        controller: The controller that gives hints.
        title: The first lines of the panel.
    """

    def __init__(
        self, terminal: Terminal, rules: Rules, pieces: Pieces, controller: LinearController, title: list[str]
    ) -> None:
        """Set up an empty board; nothing is shown yet."""
        self.terminal = terminal
        self.rules = rules
        self.pieces = pieces
        self.controller = controller
        self.title = title
        self.tracker = GameTracker(rules)
        self.played: list[AfterState] = []
        """The after-states of the person's placements, for a replay."""
        self._other = self._beside()
        self._other_lines = 0
        self._hint = False
        self._over: list[str] = []  # what is said at the end of a game, until a key is pressed
        self._began = time.monotonic()
        self._take_next()

    def summary(self) -> str:
        """Return what was played, in a line."""
        tracker, seconds = self.tracker, time.monotonic() - self._began
        rate = tracker.pieces / max(seconds, 1e-9)
        name = self.controller.name or "the controller"
        return (
            f"{tracker.lines:,} lines with {tracker.pieces:,} pieces in {seconds:.0f} s ({rate:.1f} pieces a "
            f"second), games over: {tracker.games:,}; {name} "
            f"with the same pieces: {self._other_lines:,} lines"
        )

    def run(self) -> None:
        """Play until the quit key."""
        while True:
            self._draw()
            for key in self.terminal.keys(IDLE):
                if key in ("q", "Q"):
                    return
                self._press(key)

    def _press(self, key: str) -> None:
        if self._over:
            self._over = []
        elif key in ("left", "right", "a", "d"):
            self._put(self._orientation, self._column + (1 if key in ("right", "d") else -1))
        elif key in ("up", "w"):
            self._put((self._orientation + 1) % len(PIECES[self._piece]), self._column)
        elif key in (" ", "\n", "down", "s"):
            self._drop()
        elif key in ("h", "H"):
            self._hint = not self._hint

    def _take_next(self) -> None:
        self._piece = self.pieces[self.tracker.pieces]
        self._hint = False
        self._put(0, (self.rules.width - PIECES[self._piece][0].width) // 2)

    def _put(self, orientation: int, column: int) -> None:
        """Turn and move the piece; it stays inside the board."""
        shape = PIECES[self._piece][orientation]
        self._orientation = orientation
        self._column = min(max(column, 0), self.rules.width - shape.width)
        rows = self.tracker.rows
        row = landing_row(column_heights(rows, self.rules.width), shape, self._column)
        self._after = place(rows, shape, self._column, row, self.rules)

    def _drop(self) -> None:
        scene = self._scene()
        self.tracker.carry_out(scene)
        self.played.append(self._after)
        self._other_lines += next(self._other)
        if self._after.game_over:
            self._over = [f"GAME OVER: {scene.game_lines:,} lines", "any key: the next game"]
        self._take_next()

    def _beside(self) -> Iterator[int]:
        """The lines that the controller removes, piece by piece."""
        for after in decisions(self.controller, self.rules, self.pieces):
            yield after.lines

    def _scene(self) -> Scene:
        return self.tracker.scene(self._after, self.pieces[self.tracker.pieces + 1])

    def _draw(self) -> None:
        scene, size = self._scene(), self.terminal.size
        rows, names = self.tracker.rows, self.controller.names_on(self.rules)
        weights = self.controller.float32_weights
        hint = choose(rows, self._piece, weights, names, self.rules) if self._hint else None
        panel = [
            *self.title,
            "",
            f"lines {self.tracker.lines:,}   {self.controller.name or 'controller'} {self._other_lines:,}",
            f"pieces {self.tracker.pieces:,}   games over {self.tracker.games:,}",
            *(self._over or [""]),
            "",
        ]
        if self._hint:
            panel += explanation_lines(explain(rows, self._after, self.controller), size.lines - PANEL_HEAD)
        # If the stack reaches the top, the piece is shown at rest.
        look = Look(row=max(self.rules.height, self._after.landing_row), ghost=True, hint=hint)
        self.terminal.draw(screen(scene, look, panel, FOOTER, size, self.terminal.depth))
