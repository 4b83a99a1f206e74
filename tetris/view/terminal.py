"""The screen of a terminal: single keys, the board as large as fits, a panel of text beside it.

The state of the terminal is restored at the end.
"""

from __future__ import annotations

import math
import os
import re
import select
import signal
import sys
import termios
import textwrap
import tty
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from types import FrameType
from typing import Any, TextIO

from kernels.support.printable import printable
from tetris.game.rules import Rules
from tetris.record.explanation import Explanation
from tetris.view.game_view import HEADROOM, Cells, Scene
from tetris.view.images import piece_picture
from tetris.view.text import board_lines, half_blocks

IDLE = 0.25
"""Seconds between two looks at the window's size while nothing moves."""

_ENTER = "\x1b[?1049h\x1b[?25l"  # the alternate screen, which keeps the shell's; no cursor
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
_HOME, _TO_LINE_END, _TO_SCREEN_END = "\x1b[H", "\x1b[K", "\x1b[J"

_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
_KEY = re.compile(r"\x1b[\[O]([A-D])|\x1b[\[O][0-9;]*[@-~]|(.)", re.DOTALL)

_PANELS = (39, 0)  # columns of the panel, which is cut where there are fewer: the first that fit are shown
_PANEL_HEAD = 13  # lines of the screen that are not free for features: the panel's first ones, the footer
_GAP = "  "
_NAME = 24  # columns of a feature's name
_LEAST_HEADROOM = 2  # rows, in which a waiting piece is seen
_LARGEST_CELL = 8


def is_interactive(output: TextIO) -> bool:
    """Return whether there are a keyboard and a screen that can move its cursor, has colours and blocks."""
    try:
        "▀▄│└─┘".encode(output.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    plain = os.environ.get("TERM", "dumb") in ("", "dumb") or os.environ.get("NO_COLOR")
    return not plain and output.isatty() and sys.stdin is not None and sys.stdin.isatty()


def parse_keys(text: str) -> list[str]:
    """Return the keys in the input of a terminal: ``up``, ``down``, ``right``, ``left``, or a character."""
    keys = (_ARROWS.get(match[1] or "", match[2]) for match in _KEY.finditer(text))
    return [key for key in keys if key]


class Terminal:
    """The terminal as a screen; the context restores it, also when its window is closed."""

    def __init__(self, output: TextIO, keyboard: int) -> None:
        """Set up with the keyboard's file descriptor; the terminal is changed when the context is entered."""
        self.output = output
        self.keyboard = keyboard
        self._last = ""

    def __enter__(self) -> Terminal:
        """Enter the alternate screen."""
        self._settings = termios.tcgetattr(self.keyboard)
        handlers: dict[int, Any] = {signal.SIGTSTP: signal.SIG_IGN, signal.SIGTERM: _end, signal.SIGHUP: _end}
        self._handlers = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        tty.setcbreak(self.keyboard)
        self.output.write(_ENTER)
        self.output.flush()
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the terminal."""
        termios.tcsetattr(self.keyboard, termios.TCSADRAIN, self._settings)
        self.output.write(_LEAVE)
        self.output.flush()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def show(
        self, scene: Scene, kinds: Cells, panel: Sequence[str], explanation: Explanation | None, footer: str
    ) -> None:
        """Show a `screen`, with an explanation below its panel."""
        size = os.get_terminal_size(self.output.fileno())
        if not (size.columns and size.lines):
            size = os.terminal_size((80, 24))
        if explanation is not None:
            panel = [*panel, *explanation_lines(explanation, size.lines - _PANEL_HEAD)]
        lines = screen(scene, kinds, panel, footer, size)
        text = _HOME + f"{_TO_LINE_END}\r\n".join(lines) + _TO_LINE_END + _TO_SCREEN_END
        if text != self._last:
            self._last = text
            self.output.write(text)
            self.output.flush()

    def keys(self, seconds: float) -> list[str]:
        """Return the keys pressed; waits up to ``seconds`` for the first. ``q`` if the keyboard is gone."""
        ready, _, _ = select.select([self.keyboard], [], [], seconds)
        if not ready:
            return []
        read = os.read(self.keyboard, 256)
        return parse_keys(read.decode(errors="ignore")) if read else ["q"]


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def screen(
    scene: Scene, kinds: Cells, panel: Sequence[str], footer: str, size: os.terminal_size
) -> list[str]:
    """Return the lines of the screen: the board beside the panel, or that there is no room for it."""
    rules, sizes = scene.rules, [*_sizes(scene.rules)]
    fits = [
        (cell, headroom, columns)
        for columns_of_panel in _PANELS
        for cell, headroom, columns, lines in sizes
        if columns + columns_of_panel <= size.columns and lines <= size.lines
    ]
    if not fits:
        _, _, columns, lines = sizes[-1]
        text = f"the window is too small: {columns} x {lines} needed, q quits"
        return textwrap.wrap(text, size.columns)[: size.lines]
    cell, headroom, columns = fits[0]
    board = board_lines(kinds[: rules.height + headroom], rules.height, cell, colors=True)
    room = size.columns - columns
    beside = []
    if room >= 8:  # the lines of the next piece are as wide, and not cut: they hold escape sequences
        beside = [
            "next",
            *half_blocks(piece_picture(scene.next_piece, 2)),
            *(printable(line)[:room] for line in panel),
        ]
    empty = " " * (columns - len(_GAP))
    rows = zip_longest(board, beside[: size.lines - 1])
    joined = [f"{left or empty}{_GAP}{right or ''}" for left, right in rows]
    return [*joined, *[""] * (size.lines - 1 - len(joined)), footer[: size.columns - 1]]


def explanation_lines(explanation: Explanation, room: int) -> list[str]:
    """Return a table of at most ``room`` lines: margin, value, and features, the most decisive ones first."""
    margin = "-" if explanation.margin is None else f"{explanation.margin:.2f}"
    lines = [f"{'margin':<{_NAME}}{margin:>15}", f"{'value':<{_NAME}}{explanation.value:>15.2f}"]
    columns = zip(explanation.names, explanation.features, explanation.leads, strict=True)
    # Zero times a negative weight is -0, which + 0.0 makes 0.
    rows = [
        f"{name:<{_NAME}}{value:>6g}{lead + 0.0:>9.2f}"
        for name, value, lead in sorted(columns, key=lambda each: -abs(each[2]))
    ]
    left = room - len(lines)
    if len(rows) > left:
        rows = [*rows[: max(0, left - 1)], f"{len(rows) - max(0, left - 1)} more features"]
    return lines + rows


def _sizes(rules: Rules) -> Iterator[tuple[int, int, int, int]]:
    """The sizes of a board, the largest first: a cell's columns, rows above it, its columns, all lines."""
    for cell in range(_LARGEST_CELL, 0, -1):
        for headroom in range(HEADROOM, _LEAST_HEADROOM - 1, -1):
            lines = math.ceil((rules.height + headroom) * cell / 2)
            yield cell, headroom, rules.width * cell + 2 + len(_GAP), lines + 2
