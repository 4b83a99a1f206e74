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
import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from types import FrameType
from typing import NamedTuple, TextIO

from kernels.support.printable import printable
from kernels.support.system import termios, tty
from tetris.game.rules import Rules
from tetris.record.explanation import Explanation
from tetris.view.game_view import HEADROOM, Cells, Scene
from tetris.view.images import piece_picture
from tetris.view.text import board_lines, half_blocks

IDLE = 0.25
"""Seconds between two looks at the window's size while nothing moves."""

# Escape sequences. The alternate screen leaves the shell's as it is; the cursor is hidden
# there.
_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
_HOME = "\x1b[H"
_CLEAR_LINE = "\x1b[K"
_CLEAR_SCREEN = "\x1b[J"

_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
_KEY = re.compile(r"\x1b[\[O]([A-D])|\x1b[\[O][0-9;]*[@-~]|(.)", re.DOTALL)

_PANEL_WIDTHS = (39, 0)  # The panel may be cut if the first does not fit beside a board.
_PANEL_HEAD = 13  # Lines of the screen without features: the top of the panel, and the footer.
_GAP = "  "
_NAME_WIDTH = 24  # Columns of a feature's name.
_MIN_HEADROOM = 2  # Rows that a waiting piece needs.
_LARGEST_CELL = 8


def is_interactive(output: TextIO) -> bool:
    """Return whether a person can watch a game here.

    That needs a keyboard, and a screen with a cursor, colours and the characters of blocks.
    """
    try:
        "▀▄│└─┘".encode(output.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    is_plain = os.environ.get("TERM", "dumb") in ("", "dumb") or os.environ.get("NO_COLOR")
    has_keyboard = sys.stdin is not None and sys.stdin.isatty()
    return termios is not None and not is_plain and output.isatty() and has_keyboard


def parse_keys(text: str) -> list[str]:
    """Return the keys that a terminal's input stands for: arrows such as ``up``, characters."""
    # An arrow has its letter as the first group, a character is the second. Other escape
    # sequences have neither.
    keys = (_ARROWS.get(match[1] or "", match[2]) for match in _KEY.finditer(text))
    return list(filter(None, keys))


class Terminal:
    """The terminal as a screen; the context restores it, also when its window is closed."""

    def __init__(self, output: TextIO, keyboard: int) -> None:
        """Set up with the keyboard's file descriptor; the terminal does not change yet."""
        self.output = output
        self.keyboard = keyboard
        self._shown = ""

    def __enter__(self) -> Terminal:
        """Enter the alternate screen, and read single keys without an echo.

        A signal that ends the process raises SystemExit, so that `__exit__` is called.
        """
        self._settings = termios.tcgetattr(self.keyboard)
        self._handlers = {
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, signal.SIG_IGN),
            signal.SIGTERM: signal.signal(signal.SIGTERM, _exit),
            signal.SIGHUP: signal.signal(signal.SIGHUP, _exit),
        }
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
        self,
        scene: Scene,
        kinds: Cells,
        panel: Sequence[str],
        explanation: Explanation | None,
        footer: str,
    ) -> None:
        """Draw the screen of a terminal, unless it would look the same as the last time.

        Args:
            scene: The placement to show.
            kinds: The kind of each cell of the board, such as empty or part of an S piece.
            panel: Lines of text beside the board.
            explanation: Why the placement was chosen, a table below the panel; None: no table.
            footer: The last line.
        """
        size = os.get_terminal_size(self.output.fileno())
        if size.columns == 0 or size.lines == 0:  # The terminal does not know its size.
            size = os.terminal_size((80, 24))
        if explanation is not None:
            table = explanation_lines(explanation, size.lines - _PANEL_HEAD)
            panel = [*panel, *table]
        lines = screen(scene, kinds, panel, footer, size)
        # Write over the old lines instead of clearing the screen first, which would flicker.
        text = _HOME + f"{_CLEAR_LINE}\r\n".join(lines) + _CLEAR_LINE + _CLEAR_SCREEN
        if text != self._shown:
            self._shown = text
            self.output.write(text)
            self.output.flush()

    def keys(self, seconds: float) -> list[str]:
        """Return the keys that were pressed; wait up to ``seconds`` for the first one.

        If the keyboard is gone, the result is the key ``q``, which quits.
        """
        ready, _, _ = select.select([self.keyboard], [], [], seconds)
        if not ready:
            return []
        typed = os.read(self.keyboard, 256)
        return parse_keys(typed.decode(errors="ignore")) if typed else ["q"]


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def screen(
    scene: Scene, kinds: Cells, panel: Sequence[str], footer: str, size: os.terminal_size
) -> list[str]:
    """Return the lines of a terminal's screen: the board, a panel on its right, and a footer.

    The board is as large as the screen allows. If the screen is too small for it, the lines
    say so instead.

    Args:
        scene: The placement to show.
        kinds: The kind of each cell of the board, from `scene_kinds`, row 0 at the bottom.
        panel: Lines of text of the panel, below a picture of the next piece.
        footer: The last line.
        size: Columns and lines of the screen.
    """
    height = scene.rules.height
    board_size = _choose_size(scene.rules, size)
    if board_size is None:
        *_, smallest = _sizes(scene.rules)  # From the largest to the smallest.
        text = f"the window is too small: {smallest.columns} x {smallest.lines} needed, q quits"
        return textwrap.wrap(text, size.columns)[: size.lines]
    shown_rows = kinds[: height + board_size.headroom]
    board = board_lines(shown_rows, height, board_size.cell, colors=True)
    # The columns of the board include its frame and the gap between it and the panel.
    panel_width = size.columns - board_size.columns
    panel_lines = []
    # The picture of the next piece is eight columns wide, and cannot be cut, because it has
    # escape sequences for its colours.
    if panel_width >= 8:
        panel_lines = ["next", *half_blocks(piece_picture(scene.next_piece, 2))]
        panel_lines += [printable(line)[:panel_width] for line in panel]
    # Join the lines of the board and of the panel; the shorter of the two is filled up.
    body_height = size.lines - 1
    blank = " " * (board_size.columns - len(_GAP))
    body = []
    for left, right in zip_longest(board, panel_lines[:body_height]):
        body.append(f"{left or blank}{_GAP}{right or ''}")
    body += [""] * (body_height - len(body))
    return [*body, footer[: size.columns - 1]]


def explanation_lines(explanation: Explanation, most_lines: int) -> list[str]:
    """Return a table, as lines of text, that explains why a placement was chosen.

    The first two lines are the margin, by which the placement is better than the best other
    one, and the value of the placement, which is the weighted sum of its features. A line for
    each feature follows: its name, its value, and its lead, which is how much it adds to the
    margin. Those that add or take away most come first. The table has at most ``most_lines``
    lines; if there are more features, the last line says how many.
    """
    # There is no margin if a placement ends the game.
    margin = "-" if explanation.margin is None else f"{explanation.margin:.2f}"
    header = [
        f"{'margin':<{_NAME_WIDTH}}{margin:>15}",
        f"{'value':<{_NAME_WIDTH}}{explanation.value:>15.2f}",
    ]
    features = zip(explanation.names, explanation.features, explanation.leads, strict=True)
    most_decisive_first = sorted(features, key=lambda row: -abs(row[2]))
    rows = []
    for name, value, lead in most_decisive_first:
        lead += 0.0  # This makes 0 of -0, which zero times a negative weight is.
        rows.append(f"{name:<{_NAME_WIDTH}}{value:>6g}{lead:>9.2f}")
    most_rows = most_lines - len(header)
    if len(rows) > most_rows:
        shown_rows = max(0, most_rows - 1)
        rows[shown_rows:] = [f"{len(rows) - shown_rows} more features"]
    return header + rows


class _Size(NamedTuple):
    """A size of the board, in characters of the screen.

    Attributes:
        cell: Columns of a cell.
        headroom: Rows of the game above the board.
        columns: Columns of the board, with its frame and the gap beside it.
        lines: Lines of the board, with its frame and the footer.
    """

    cell: int
    headroom: int
    columns: int
    lines: int


def _sizes(rules: Rules) -> Iterator[_Size]:
    """Yield the sizes of a board, the largest first."""
    columns_beside = 2 + len(_GAP)
    for cell in range(_LARGEST_CELL, 0, -1):
        for headroom in range(HEADROOM, _MIN_HEADROOM - 1, -1):
            lines = math.ceil((rules.height + headroom) * cell / 2)
            yield _Size(cell, headroom, rules.width * cell + columns_beside, lines + 2)


def _choose_size(rules: Rules, screen_size: os.terminal_size) -> _Size | None:
    """Return the largest size of the board that fits on the screen; None if none fits.

    The board leaves room for the panel, if a board of any size can.
    """
    for panel_width in _PANEL_WIDTHS:
        for size in _sizes(rules):
            has_columns = size.columns + panel_width <= screen_size.columns
            if has_columns and size.lines <= screen_size.lines:
                return size
    return None
