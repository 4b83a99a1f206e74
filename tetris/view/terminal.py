"""A terminal as a screen: single keys, full-screen pictures; its state is restored at the end."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import tty
from types import FrameType
from typing import Any, TextIO

_ENTER = "\x1b[?1049h\x1b[?25l"  # the alternate screen, which keeps the shell's; no cursor
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
_HOME, _TO_LINE_END, _TO_SCREEN_END = "\x1b[H", "\x1b[K", "\x1b[J"

_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
_KEY = re.compile(r"\x1b[\[O]([A-D])|\x1b[\[O][0-9;]*[@-~]|(.)", re.DOTALL)


def is_interactive(output: TextIO) -> bool:
    """Return whether there are a keyboard and a screen that can move its cursor."""
    dumb = os.environ.get("TERM", "dumb") in ("", "dumb")
    return not dumb and output.isatty() and sys.stdin is not None and sys.stdin.isatty()


def color_depth(output: TextIO) -> int:
    """Return 24 or 8 bits of colour; 0 where NO_COLOR is set or half blocks cannot be written."""
    try:
        "▀▄│└─┘".encode(output.encoding or "ascii")
    except UnicodeEncodeError:
        return 0
    if os.environ.get("NO_COLOR"):
        return 0
    return 24 if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit") else 8


def parse_keys(text: str) -> list[str]:
    """Return the keys in the input of a terminal: ``up``, ``down``, ``right``, ``left``, or a character."""
    keys = (_ARROWS.get(match[1] or "", match[2]) for match in _KEY.finditer(text))
    return [key for key in keys if key]


class Terminal:
    """The terminal as a screen; the context restores it, also on Ctrl-Z and when its window is closed."""

    def __init__(self, output: TextIO, keyboard: int) -> None:
        """Set up with the keyboard's file descriptor; the terminal is changed when the context is entered."""
        self.output = output
        self.keyboard = keyboard
        self.depth = color_depth(output)
        self._settings: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._last = ""

    def __enter__(self) -> Terminal:
        """Enter the alternate screen."""
        self._settings = termios.tcgetattr(self.keyboard)
        self._handlers = {
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, self._suspend),
            signal.SIGTERM: signal.signal(signal.SIGTERM, _end),
            signal.SIGHUP: signal.signal(signal.SIGHUP, _end),
        }
        self._take()
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the terminal."""
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    @property
    def size(self) -> os.terminal_size:
        """The current columns and lines."""
        size = os.get_terminal_size(self.output.fileno())
        return size if size.columns and size.lines else os.terminal_size((80, 24))

    def draw(self, lines: list[str]) -> None:
        """Show lines that fit the screen; unchanged lines are not written again."""
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

    def _take(self) -> None:
        tty.setcbreak(self.keyboard)
        self._last = ""
        self.output.write(_ENTER)
        self.output.flush()

    def _give_back(self) -> None:
        termios.tcsetattr(self.keyboard, termios.TCSADRAIN, self._settings)
        self.output.write(_LEAVE)
        self.output.flush()

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        """Restore the terminal, stop as Ctrl-Z does, and enter the screen again on continuation."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._suspend)
        self._take()


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
