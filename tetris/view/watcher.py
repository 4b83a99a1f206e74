"""Watching: scenes in a terminal, at a speed that keys choose."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator

from tetris.game.policy import Player
from tetris.record.explanation import Explanation, explain
from tetris.view.game_view import Scene, scene_kinds
from tetris.view.screen import IDLE, PANEL_HEAD, explanation_lines, screen
from tetris.view.terminal import Terminal

SPEEDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, math.inf)
"""The speeds that keys choose from, in pieces a second; the last one is that of the engine."""

FOOTER = "space pause   . step   + faster   - slower   q quit"

_FRAME = 1 / 30
_FALL = 0.6  # share of a piece's time in which it falls; then it is shown at rest
_FASTEST_FALL = 12.0  # pieces a second; above, a fall would be two frames


class Watcher:
    """Shows scenes until the quit key, ``speed`` pieces per second at first, explained by a player."""

    def __init__(
        self,
        terminal: Terminal,
        scenes: Iterator[Scene],
        player: Player | None,
        title: list[str],
        speed: float,
    ) -> None:
        """Set up; nothing is shown yet."""
        self.terminal = terminal
        self.scenes = scenes
        self.player = player
        self.title = title
        self.speed = speed
        self.paused = False
        self.ended = False
        self._progress = 0.0  # of the current piece: 0 when it appears, 1 when the next one appears
        self._shown: deque[tuple[float, int]] = deque()
        self._explained: tuple[Scene, Explanation] | None = None

    def run(self) -> None:
        """Show the scenes."""
        scene = next(self.scenes, None)
        if scene is None:
            return
        last = time.monotonic()
        while True:
            self._draw(scene)
            still = self.paused or self.ended
            for key in self.terminal.keys(IDLE if still else self._wait()):
                if key in ("q", "Q"):
                    return
                scene = self._press(key, scene)
            now = time.monotonic()
            if not (self.paused or self.ended):
                scene = self._go_on(scene, now - last)
            last = now

    def _press(self, key: str, scene: Scene) -> Scene:
        if key == " ":
            self.paused = not self.paused
            self._shown.clear()
        elif key in (".", "n", "right"):
            self.paused = True
            # A piece that is still falling comes to rest first.
            scene = self._next(scene) if self._at_rest else scene
            self._progress = _FALL
        elif key in ("+", "=", "up"):
            self.speed = next((speed for speed in SPEEDS if speed > self.speed), self.speed)
            self._shown.clear()
        elif key in ("-", "_", "down"):
            self.speed = next((speed for speed in reversed(SPEEDS) if speed < self.speed), self.speed)
            self._shown.clear()
        return scene

    def _wait(self) -> float:
        return 0.0 if self.speed == math.inf else min(_FRAME, 1 / self.speed)

    @property
    def _at_rest(self) -> bool:
        return self._progress >= _FALL or self.speed > _FASTEST_FALL

    def _go_on(self, scene: Scene, seconds: float) -> Scene:
        """Play on for a time; pieces that the engine cannot play within a frame are not caught up."""
        due = time.monotonic() + _FRAME
        self._progress += min(seconds, 1.0) * self.speed if self.speed < math.inf else math.inf
        while self._progress >= 1 and not self.ended:
            self._progress -= 1
            scene = self._next(scene)
            if time.monotonic() > due:
                self._progress = min(self._progress, 0.0)
        return scene

    def _next(self, scene: Scene) -> Scene:
        following = next(self.scenes, None)
        self.ended = following is None
        if self.ended:
            self._progress = _FALL
        return scene if following is None else following

    def _draw(self, scene: Scene) -> None:
        size, depth = self.terminal.size, self.terminal.depth
        boards, panel = [scene_kinds(scene, self._row(scene))], self._panel(scene, size.lines)
        self.terminal.draw(screen(scene.rules, boards, scene.next_piece, panel, FOOTER, size, depth))

    def _row(self, scene: Scene) -> int:
        """The row of the piece in the picture: it falls from just above the board."""
        resting = scene.after.landing_row
        if self._at_rest or resting >= scene.rules.height:
            return resting
        return round(scene.rules.height + (resting - scene.rules.height) * self._progress / _FALL)

    def _panel(self, scene: Scene, lines: int) -> list[str]:
        speed = "as fast as it goes" if self.speed == math.inf else f"{self.speed:g} pieces/s"
        state = "the end" if self.ended else "paused" if self.paused else speed
        panel = [
            *self.title,
            "",
            f"lines {scene.lines:,}   this game {scene.game_lines:,}",
            f"pieces {scene.pieces:,}   games over {scene.games + scene.after.game_over:,}",
            f"{state}{self._measured(scene)}",
            "",
        ]
        if self.player is not None:
            if self._explained is None or self._explained[0] is not scene:
                self._explained = scene, explain(scene.rows, scene.after, self.player, scene.next_piece)
            panel += explanation_lines(self._explained[1], lines - PANEL_HEAD)
        return panel

    def _measured(self, scene: Scene) -> str:
        """The measured pieces a second over the last two seconds; empty before half a second."""
        now = time.monotonic()
        self._shown.append((now, scene.pieces))
        while now - self._shown[0][0] > 2:
            self._shown.popleft()
        seconds, pieces = now - self._shown[0][0], scene.pieces - self._shown[0][1]
        still = self.paused or self.ended
        return "" if still or seconds < 0.5 else f", measured {pieces / seconds:.3g}"
