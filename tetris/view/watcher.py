"""Shows scenes in a terminal, at a speed that keys choose."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tetris.game.policy import Player
from tetris.record.explanation import Explanation, explain
from tetris.view.game_view import Scene, scene_kinds
from tetris.view.terminal import IDLE, Terminal

SPEEDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, math.inf)
"""The speeds that keys choose, in pieces per second; the last is as fast as possible."""

FOOTER = "space pause   . step   + faster   - slower   q quit"

_FRAME = 1 / 30
_FALL = 0.6  # The share of a piece's time in which it falls; then it is shown at rest.
_FASTEST_FALL = 12.0  # Pieces per second; at more, a fall would be two frames.


@dataclass
class Watcher:
    """Shows scenes until the quit key, with explanations if there is a player.

    Attributes:
        terminal: The terminal.
        scenes: At least one scene.
        player: Whose decisions are explained.
        title: The first lines of the panel.
        speed: Pieces per second.
        paused: Whether the scenes stand still.
        ended: Whether the last scene is shown.
    """

    terminal: Terminal
    scenes: Iterator[Scene]
    player: Player | None
    title: list[str]
    speed: float
    paused: bool = False
    ended: bool = False
    _progress: float = 0.0  # 0 when the current piece appears, 1 when the next one appears.
    _explanation: Explanation | None = None

    def __post_init__(self) -> None:
        """Take the first scene; nothing is shown yet."""
        self._scene = next(self.scenes)

    def run(self) -> None:
        """Show a game in a terminal, at a speed that keys choose, until a key quits.

        After the last placement the picture stays until then.
        """
        last_time = time.monotonic()
        while True:
            self._draw()
            is_moving = not (self.paused or self.ended)
            seconds_to_next_frame = min(_FRAME, 1 / self.speed) if is_moving else IDLE
            # Wait for keys until the next frame.
            for key in self.terminal.keys(seconds_to_next_frame):
                if key in ("q", "Q"):
                    return
                self._press(key)
            this_time = time.monotonic()
            if not (self.paused or self.ended):  # A key may have changed that.
                self._play(this_time - last_time)
            last_time = this_time

    def _press(self, key: str) -> None:
        """Do what a key stands for: pause, show the next placement, play faster or slower."""
        if key == " ":
            self.paused = not self.paused
        elif key in (".", "n", "right"):
            self.paused = True
            # The first press lets a falling piece come to rest, the second shows the next one.
            if self._at_rest:
                self._show_next()
            self._progress = _FALL
        elif key in ("+", "=", "up"):
            faster = [speed for speed in SPEEDS if speed > self.speed]
            self.speed = min(faster, default=self.speed)
        elif key in ("-", "_", "down"):
            slower = [speed for speed in SPEEDS if speed < self.speed]
            self.speed = max(slower, default=self.speed)

    @property
    def _at_rest(self) -> bool:
        return self._progress >= _FALL or self.speed > _FASTEST_FALL

    def _play(self, seconds: float) -> None:
        """Move on by the scenes of a time at the chosen speed.

        If the player is too slow to play them all within a frame, the rest is not made up for.
        """
        frame_end = time.monotonic() + _FRAME
        is_limited = self.speed < math.inf
        self._progress += min(seconds, 1.0) * self.speed if is_limited else math.inf
        while self._progress >= 1 and not self.ended:
            self._progress -= 1
            self._show_next()
            if time.monotonic() > frame_end:
                self._progress = min(self._progress, 0.0)

    def _show_next(self) -> None:
        scene = next(self.scenes, None)
        if scene is None:
            self.ended = True
            self._progress = _FALL
        else:
            self._scene = scene
            self._explanation = None

    @property
    def _state(self) -> str:
        if self.ended:
            return "the end"
        if self.paused:
            return "paused"
        return "as fast as it goes" if self.speed == math.inf else f"{self.speed:g} pieces/s"

    def _draw(self) -> None:
        """Draw the board with the current piece, falling or at rest, and a panel of text.

        The progress of a piece goes from 0, when it appears just above the board, to 1, when
        the next one appears. At `_FALL`, which is between them, it comes to rest.
        """
        scene = self._scene
        landing_row = scene.after.landing_row
        top = scene.rules.height
        row = landing_row
        if not self._at_rest and landing_row < top:
            row = round(top + (landing_row - top) * self._progress / _FALL)
        panel = [
            *self.title,
            "",
            f"lines {scene.lines:,}   this game {scene.game_lines:,}",
            f"pieces {scene.pieces:,}   games over {scene.games + scene.after.game_over:,}",
            self._state,
            "",
        ]
        # Explain the placement once, when it is drawn first.
        if self.player is not None and self._explanation is None:
            self._explanation = explain(scene.rows, scene.after, self.player, scene.next_piece)
        kinds = scene_kinds(scene, row)
        self.terminal.show(scene, kinds, panel, self._explanation, FOOTER)
