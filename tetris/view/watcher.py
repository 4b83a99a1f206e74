"""Watching: scenes in a terminal, at a speed that keys choose."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tetris.game.policy import Player
from tetris.record.explanation import Explanation, explain
from tetris.view.game_view import Scene
from tetris.view.terminal import IDLE, Terminal

SPEEDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, math.inf)
"""The speeds that keys choose from, in pieces per second; the last one is that of the engine."""

FOOTER = "space pause   . step   + faster   - slower   q quit"

_FRAME = 1 / 30


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
    _progress: float = 0.0  # of the current piece: 1 when the next one appears
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
            self._next()
        elif key in ("+", "=", "up"):
            self.speed = next((speed for speed in SPEEDS if speed > self.speed), self.speed)
        elif key in ("-", "_", "down"):
            self.speed = next((speed for speed in reversed(SPEEDS) if speed < self.speed), self.speed)

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
            self.ended = True
        else:
            self._scene, self._explanation = following, None

    def _draw(self) -> None:
        scene = self._scene
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
        self.terminal.show(scene, panel, self._explanation, FOOTER)
