"""Watching: scenes in a terminal, at a speed that keys choose."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tetris.game.policy import Player
from tetris.record.explanation import Explanation, explain
from tetris.view.game_view import Scene, scene_kinds
from tetris.view.terminal import IDLE, Terminal

SPEEDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, math.inf)
"""The speeds that keys choose from, in pieces per second; the last one is that of the engine."""

FOOTER = "space pause   . step   + faster   - slower   q quit"

_FRAME = 1 / 30
_FALL = 0.6  # share of a piece's time in which it falls; then it is shown at rest
_FASTEST_FALL = 12.0  # pieces per second; above, a fall would be two frames


@dataclass
class Watcher:
    """Shows scenes, at least one, until the quit key, explained by a player.

    ``speed`` is in pieces per second, at first.
    """

    terminal: Terminal
    scenes: Iterator[Scene]
    player: Player | None
    title: list[str]
    speed: float
    paused: bool = False
    ended: bool = False
    _progress: float = 0.0  # of the current piece: 0 when it appears, 1 when the next one appears
    _explanation: Explanation | None = None

    def __post_init__(self) -> None:
        """Take the first scene; nothing is shown yet."""
        self._scene = next(self.scenes)

    def run(self) -> None:
        """Show the scenes."""
        last = time.monotonic()
        while True:
            self._draw()
            still = self.paused or self.ended
            for key in self.terminal.keys(IDLE if still else min(_FRAME, 1 / self.speed)):
                if key in ("q", "Q"):
                    return
                self._press(key)
            now = time.monotonic()
            if not (self.paused or self.ended):
                self._go_on(now - last)
            last = now

    def _press(self, key: str) -> None:
        if key == " ":
            self.paused = not self.paused
        elif key in (".", "n", "right"):
            self.paused = True
            if self._at_rest:  # a piece that is still falling comes to rest first
                self._next()
            self._progress = _FALL
        elif key in ("+", "=", "up"):
            self.speed = next((speed for speed in SPEEDS if speed > self.speed), self.speed)
        elif key in ("-", "_", "down"):
            self.speed = next((speed for speed in reversed(SPEEDS) if speed < self.speed), self.speed)

    @property
    def _at_rest(self) -> bool:
        return self._progress >= _FALL or self.speed > _FASTEST_FALL

    def _go_on(self, seconds: float) -> None:
        """Play on for a time; pieces that the engine cannot play within a frame are not caught up."""
        due = time.monotonic() + _FRAME
        self._progress += min(seconds, 1.0) * self.speed if self.speed < math.inf else math.inf
        while self._progress >= 1 and not self.ended:
            self._progress -= 1
            self._next()
            if time.monotonic() > due:
                self._progress = min(self._progress, 0.0)

    def _next(self) -> None:
        following = next(self.scenes, None)
        if following is None:
            self.ended, self._progress = True, _FALL
        else:
            self._scene, self._explanation = following, None

    def _draw(self) -> None:
        scene = self._scene
        row = scene.after.landing_row
        if not self._at_rest and row < scene.rules.height:  # it falls from just above the board
            row = round(scene.rules.height + (row - scene.rules.height) * self._progress / _FALL)
        speed = "as fast as it goes" if self.speed == math.inf else f"{self.speed:g} pieces/s"
        panel = [
            *self.title,
            "",
            f"lines {scene.lines:,}   this game {scene.game_lines:,}",
            f"pieces {scene.pieces:,}   games over {scene.games + scene.after.game_over:,}",
            "the end" if self.ended else "paused" if self.paused else speed,
            "",
        ]
        if self.player is not None and self._explanation is None:
            self._explanation = explain(scene.rows, scene.after, self.player, scene.next_piece)
        self.terminal.show(scene, scene_kinds(scene, row), panel, self._explanation, FOOTER)
