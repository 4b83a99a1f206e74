"""Shows scenes in a terminal, at a speed that the viewer chooses by keys."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tetris.game.policy import Player
from tetris.record.explanation import Explanation, explain
from tetris.view.game_view import Scene, scene_kinds
from tetris.view.terminal import IDLE, Terminal

SPEEDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, math.inf)
"""The speeds that the viewer can choose, in pieces per second; inf: as fast as possible."""

FOOTER = "space pause   . step   + faster   - slower   q quit"

_FRAME = 1 / 30  # The seconds between two pictures.
_FALL = 0.6  # The share of a piece's time in which it falls. In the rest it is shown at rest.
_FASTEST_FALL = 12.0  # At more pieces per second a fall would have less than two pictures.


@dataclass
class Watcher:
    """Shows scenes in a terminal until the viewer presses the key that quits.

    Attributes:
        terminal: The terminal.
        scenes: The scenes, at least one.
        player: The player whose decisions are explained; None: no explanations.
        title: The first lines of the panel.
        speed: The speed in pieces per second.
        paused: Whether the scenes are paused.
        ended: Whether the last scene has been shown completely.
    """

    terminal: Terminal
    scenes: Iterator[Scene]
    player: Player | None
    title: list[str]
    speed: float
    paused: bool = False
    ended: bool = False
    _progress: float = 0.0  # 0 when the current piece appears, 1 when the next one appears.
    _explanation: Explanation | None = None  # Of the current scene; None until it is drawn.

    def __post_init__(self) -> None:
        """Take the first scene; nothing is shown yet."""
        self._scene = next(self.scenes)

    def run(self) -> None:
        """Show the scenes in the terminal until the viewer presses the key that quits.

        The picture of the last placement stays on the screen until then.
        """
        last_time = time.monotonic()
        while True:
            self._draw()
            is_moving = not (self.paused or self.ended)
            # The next picture is due after `_FRAME` seconds, or sooner at a high speed. If
            # nothing moves, it is needed only when the size of the terminal changes.
            seconds_to_next_picture = min(_FRAME, 1 / self.speed) if is_moving else IDLE
            # Wait until the next picture is due, or until the viewer presses a key.
            for key in self.terminal.keys(seconds_to_next_picture):
                if key in ("q", "Q"):
                    return
                self._press(key)
            this_time = time.monotonic()
            if not (self.paused or self.ended):  # A key may have paused or resumed the game.
                self._play(this_time - last_time)
            last_time = this_time

    def _press(self, key: str) -> None:
        """Act on a key: pause or resume, show the next placement, play faster or slower."""
        if key == " ":
            self.paused = not self.paused
        elif key in (".", "n", "right"):
            self.paused = True
            # If the piece is falling, show it at rest. Otherwise show the next piece at rest.
            # A piece is at rest when its progress is `_FALL`.
            if self._at_rest:
                self._show_next()
            self._progress = _FALL
        elif key in ("+", "=", "up"):
            faster_speeds = [speed for speed in SPEEDS if speed > self.speed]
            self.speed = min(faster_speeds, default=self.speed)
        elif key in ("-", "_", "down"):
            slower_speeds = [speed for speed in SPEEDS if speed < self.speed]
            self.speed = max(slower_speeds, default=self.speed)

    @property
    def _at_rest(self) -> bool:
        """Whether the current piece is shown at rest. At a high speed pieces do not fall."""
        return self._progress >= _FALL or self.speed > _FASTEST_FALL

    def _play(self, seconds: float) -> None:
        """Go on by the number of scenes that ``seconds`` at the chosen speed stand for.

        If the player is too slow to play them all until the next picture, the remaining ones
        are not made up for.
        """
        deadline = time.monotonic() + _FRAME
        is_limited = self.speed < math.inf
        self._progress += min(seconds, 1.0) * self.speed if is_limited else math.inf
        # The integer part of the progress is the number of scenes to go on by.
        while self._progress >= 1 and not self.ended:
            self._progress -= 1
            self._show_next()
            if time.monotonic() > deadline:
                self._progress = min(self._progress, 0.0)

    def _show_next(self) -> None:
        """Make the next scene the current one, or end if there is none."""
        scene = next(self.scenes, None)
        if scene is None:
            self.ended = True
            self._progress = _FALL
        else:
            self._scene = scene
            self._explanation = None

    @property
    def _state(self) -> str:
        """The line of the panel that says whether and how fast the scenes go on."""
        if self.ended:
            return "the end"
        if self.paused:
            return "paused"
        return "as fast as it goes" if self.speed == math.inf else f"{self.speed:g} pieces/s"

    def _draw(self) -> None:
        """Draw the board with the current piece, falling or at rest, and a panel of text.

        The progress of a piece is 0 when it appears just above the board. At `_FALL` it comes
        to rest, and at 1 the next piece appears.
        """
        scene = self._scene
        landing_row = scene.after.landing_row
        top = scene.rules.height
        row = landing_row  # The row of the piece's bottom.
        # A piece that comes to rest above the board does not fall: it ends the game.
        if not self._at_rest and landing_row < top:
            # The row moves from `top` to `landing_row`.
            row = round(top + (landing_row - top) * self._progress / _FALL)
        games_over = scene.games + int(scene.after.game_over)
        panel = [
            *self.title,
            "",
            f"lines {scene.lines:,}   this game {scene.game_lines:,}",
            f"pieces {scene.pieces:,}   games over {games_over:,}",
            self._state,
            "",
        ]
        # Explain a placement only once, when it is drawn for the first time.
        if self.player is not None and self._explanation is None:
            self._explanation = explain(scene.rows, scene.after, self.player, scene.next_piece)
        kinds = scene_kinds(scene, row)
        self.terminal.show(scene, kinds, panel, self._explanation, FOOTER)
