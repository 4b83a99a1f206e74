"""The screen of a terminal: it shows a board and a panel of text, and reads single keys.

The board is as large as the screen allows. The state of the terminal is restored at the end.
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
"""The seconds between two checks of the window's size while nothing moves."""

# Escape sequences. The game is shown on the terminal's alternate screen, without a cursor, so
# that the screen of the shell does not change.
_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
_HOME = "\x1b[H"
_CLEAR_LINE = "\x1b[K"
_CLEAR_SCREEN = "\x1b[J"

_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
_KEY = re.compile(r"\x1b[\[O]([A-D])|\x1b[\[O][0-9;]*[@-~]|(.)", re.DOTALL)

# The width for which the board leaves room. If it does not fit beside a board of any size, the
# panel is cut.
_PANEL_WIDTHS = (39, 0)
# The lines of the screen that do not show features: the top of the panel, and the footer.
_PANEL_HEAD = 13
_GAP = "  "  # The gap between the board and the panel.
_NAME_WIDTH = 24  # The columns of a feature's name.
_MIN_HEADROOM = 2  # The rows above the board that a new piece needs.
_LARGEST_CELL = 8  # Columns.


def is_interactive(output: TextIO) -> bool:
    """Return whether a person can watch a game in the terminal.

    This requires a keyboard, and a screen with a cursor, colours and block characters.
    """
    try:
        "▀▄│└─┘".encode(output.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    is_plain = os.environ.get("TERM", "dumb") in ("", "dumb") or os.environ.get("NO_COLOR")
    has_keyboard = sys.stdin is not None and sys.stdin.isatty()
    return termios is not None and not is_plain and output.isatty() and has_keyboard


def parse_keys(text: str) -> list[str]:
    """Return the keys in the input of a terminal: characters, or arrows such as ``up``.

    Other keys are ignored.
    """
    # The first group of a match is the letter of an arrow, the second group is a character.
    # Other escape sequences have neither.
    keys = (_ARROWS.get(match[1] or "", match[2]) for match in _KEY.finditer(text))
    return list(filter(None, keys))


class Terminal:
    """The terminal as a screen. Use it in a ``with`` statement, which restores the terminal.

    The terminal is restored also when its window is closed.
    """

    def __init__(self, output: TextIO, keyboard: int) -> None:
        """Set up the screen; the terminal does not change yet.

        Args:
            output: The stream that writes to the terminal.
            keyboard: The file descriptor of the keyboard.
        """
        self.output = output
        self.keyboard = keyboard
        self._last_text = ""  # What the screen shows.

    def __enter__(self) -> Terminal:
        """Enter the alternate screen, and read single keys without an echo.

        A signal that ends the process raises SystemExit, so that `__exit__` is called.
        """
        self._settings = termios.tcgetattr(self.keyboard)
        # Save the former handlers, which `signal.signal` returns when it sets the new ones.
        # Ctrl-Z (SIGTSTP) is ignored, because it would stop the process and leave the alternate
        # screen on.
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
        """Draw a scene and texts on the terminal, unless it already shows the same.

        Args:
            scene: The placement to show.
            kinds: The kind of each cell of the board, such as empty or part of an S piece.
            panel: Lines of text beside the board.
            explanation: Why the placement was chosen, shown as a table below the panel; None:
                no table.
            footer: The last line of the screen.
        """
        size = os.get_terminal_size(self.output.fileno())
        if size.columns == 0 or size.lines == 0:  # The terminal does not know its size.
            size = os.terminal_size((80, 24))
        panel_lines = list(panel)
        if explanation is not None:
            panel_lines += explanation_lines(explanation, size.lines - _PANEL_HEAD)
        lines = screen(scene, kinds, panel_lines, footer, size)
        # Overwrite the old lines, and clear only what remains of each. To clear the complete
        # screen first would make it flicker.
        text = _HOME + f"{_CLEAR_LINE}\r\n".join(lines) + _CLEAR_LINE + _CLEAR_SCREEN
        if text != self._last_text:
            self._last_text = text
            self.output.write(text)
            self.output.flush()

    def keys(self, seconds: float) -> list[str]:
        """Return the keys that were pressed; wait up to ``seconds`` for the first one.

        If the terminal has been closed, the result is the key ``q``, which quits.
        """
        ready, _, _ = select.select([self.keyboard], [], [], seconds)
        if not ready:
            return []
        typed = os.read(self.keyboard, 256)
        return parse_keys(typed.decode(errors="ignore")) if typed else ["q"]


def _exit(number: int, frame: FrameType | None) -> None:
    """Handle a signal: raise SystemExit with the status that shells use for the signal."""
    raise SystemExit(128 + number)


def screen(
    scene: Scene, kinds: Cells, panel: Sequence[str], footer: str, size: os.terminal_size
) -> list[str]:
    """Return the lines of a terminal's screen: the board, a panel on its right, and a footer.

    The board is as large as the screen allows. If the screen is too small even for the smallest
    board, the lines are a message that says so.

    Args:
        scene: The placement to show.
        kinds: The kind of each cell of the board, from `scene_kinds`, row 0 at the bottom.
        panel: The lines of text in the panel, below a picture of the next piece.
        footer: The last line of the screen.
        size: The columns and lines of the screen.
    """
    height = scene.rules.height
    board_size = _choose_size(scene.rules, size)
    if board_size is None:
        # The sizes of a board are sorted from the largest to the smallest.
        *_, smallest = _sizes(scene.rules)
        text = f"the window is too small: {smallest.columns} x {smallest.lines} needed, q quits"
        return textwrap.wrap(text, size.columns)[: size.lines]
    visible_kinds = kinds[: height + board_size.headroom]
    board = board_lines(visible_kinds, height, board_size.cell)
    # `board_size.columns` includes the frame of the board and the gap beside it.
    panel_width = size.columns - board_size.columns
    panel_lines = []
    # The picture of the next piece is eight columns wide. Escape sequences set its colours, so
    # it cannot be cut. A narrower panel stays empty.
    if panel_width >= 8:
        panel_lines = ["next", *half_blocks(piece_picture(scene.next_piece, cell=2))]
        panel_lines += [printable(line)[:panel_width] for line in panel]
    blank = " " * (board_size.columns - len(_GAP))
    body_height = size.lines - 1  # The footer takes one line.
    body = _join_lines(board, panel_lines[:body_height], blank)
    body += [""] * (body_height - len(body))
    return [*body, footer[: size.columns - 1]]


def _join_lines(board: Sequence[str], panel: Sequence[str], blank: str) -> list[str]:
    """Return each line of a board and the line of the panel beside it, as one line.

    Below a short board the lines of the panel follow ``blank``.
    """
    lines = []
    for board_line, panel_line in zip_longest(board, panel):
        lines.append(f"{board_line or blank}{_GAP}{panel_line or ''}")
    return lines


def explanation_lines(explanation: Explanation, most_lines: int) -> list[str]:
    """Return a table, as lines of text, that explains why a placement was chosen.

    The first line is the margin: the value of the placement minus the value of the best other
    placement. The second line is the value, which is the weighted sum of the features. Then
    there is a line for each feature: its name, its value, and its lead, which is what it adds
    to the margin. The features with the largest leads, positive or negative, come first.

    The table has at most ``most_lines`` lines. If there are too many features, the last line
    says how many are left out.
    """
    # There is no margin if the placement, or every other one, ends the game.
    margin = "-" if explanation.margin is None else f"{explanation.margin:.2f}"
    # A line begins with a name of `_NAME_WIDTH` characters. The numbers are flush right.
    header = [
        f"{'margin':<{_NAME_WIDTH}}{margin:>15}",
        f"{'value':<{_NAME_WIDTH}}{explanation.value:>15.2f}",
    ]
    features = zip(explanation.names, explanation.features, explanation.leads, strict=True)
    # The third item of a row is the lead.
    most_decisive_first = sorted(features, key=lambda row: -abs(row[2]))
    rows = []
    for name, value, lead in most_decisive_first:
        # Zero times a negative weight is -0.0. Adding 0.0 makes it 0.0, which has no sign.
        rows.append(f"{name:<{_NAME_WIDTH}}{value:>6g}{lead + 0.0:>9.2f}")
    most_rows = most_lines - len(header)
    if len(rows) > most_rows:
        # Keep one line for the number of features that are left out.
        num_shown = max(0, most_rows - 1)
        rows = [*rows[:num_shown], f"{len(rows) - num_shown} more features"]
    return header + rows


class _Size(NamedTuple):
    """A size of the board, in characters of the screen.

    Attributes:
        cell: The columns of a cell.
        headroom: The rows of the game that are shown above the board.
        columns: The columns of the board, including its frame and the gap beside it.
        lines: The lines of the board, including its frame and the footer.
    """

    cell: int
    headroom: int
    columns: int
    lines: int


def _sizes(rules: Rules) -> Iterator[_Size]:
    """Yield the possible sizes of a board, the largest first."""
    columns_beside = 2 + len(_GAP)  # The frame has a column on either side.
    for cell in range(_LARGEST_CELL, 0, -1):
        for headroom in range(HEADROOM, _MIN_HEADROOM - 1, -1):
            # A line shows two rows of pixels. A cell has as many rows of pixels as columns.
            lines = math.ceil((rules.height + headroom) * cell / 2)
            yield _Size(cell, headroom, rules.width * cell + columns_beside, lines + 2)


def _choose_size(rules: Rules, screen_size: os.terminal_size) -> _Size | None:
    """Return the largest size of the board that fits on the screen; None if no size fits.

    If any size leaves room for the panel, a size that leaves room for it is returned.
    """
    for panel_width in _PANEL_WIDTHS:
        for size in _sizes(rules):
            has_columns = size.columns + panel_width <= screen_size.columns
            if has_columns and size.lines <= screen_size.lines:
                return size
    return None
