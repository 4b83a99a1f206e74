"""The screen of the watcher: the board as large as fits, with a panel of text beside it."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

from kernels.support.printable import printable
from tetris.game.rules import PIECE_LETTERS, Rules
from tetris.record.explanation import Explanation
from tetris.view.game_view import HEADROOM, Cells
from tetris.view.images import board_picture, piece_picture
from tetris.view.text import board_lines, half_blocks

PANEL = 39
"""Columns of the panel; it is cut where there are fewer, and dropped where there is no room."""

RACE_PANEL = 28
"""Columns of the panel beside two boards: they are shown where there is room for it."""

PANEL_HEAD = 13
"""Lines of the screen that are not free for features: the panel's first ones, the footer."""

IDLE = 0.25
"""Seconds between two looks at the window's size while nothing moves."""

_GAP = "  "
_NAME = 24  # columns of a feature's name
_LEAST_HEADROOM, _LEAST_PLAIN_HEADROOM = 2, 1  # rows, in which a waiting piece is seen
_LARGEST_CELL = 8


def screen(
    rules: Rules,
    boards: Sequence[Cells],
    next_piece: int | None,
    panel: Sequence[str],
    footer: str,
    size: os.terminal_size,
    depth: int,
    names: tuple[str, str] = ("", ""),
) -> list[str]:
    """Return the lines of the screen: one or two boards beside the panel, above the footer.

    A second board, each as `board_kinds` returns it, is shown where there is room, with names below both. The
    depth is that of colours, 24, 8 or 0 bits.
    """
    fit = _fit(rules, size, depth, boards=2, panels=(RACE_PANEL,)) if len(boards) > 1 else None
    if fit is None:
        boards, names, fit = boards[:1], ("", ""), _fit(rules, size, depth)
    if fit is None:
        least = least_size(rules, depth)
        text = f"the window is too small: {least.columns} x {least.lines} needed, q quits"
        return textwrap.wrap(text, size.columns)[: size.lines]
    cell, headroom = fit
    drawn = [
        _board(rules, kinds[: rules.height + headroom], cell, depth, printable(name))
        for kinds, name in zip(boards, names, strict=False)
    ]
    board = [_GAP.join(lines) for lines in zip(*drawn, strict=True)]
    width = len(boards) * (_board_width(rules, cell) + len(_GAP))
    room = size.columns - width
    beside = []
    if room >= 8:  # the lines of the next piece are as wide, and not cut: they hold escape sequences
        beside = [*_next_piece(next_piece, depth), *(printable(line)[:room] for line in panel)]
    empty = " " * (width - len(_GAP))
    rows = zip_longest(board, beside[: size.lines - 1])
    joined = [f"{left or empty}{_GAP}{right or ''}" for left, right in rows]
    return [*joined, *[""] * (size.lines - 1 - len(joined)), footer[: size.columns - 1]]


def least_size(rules: Rules, depth: int) -> os.terminal_size:
    """Return the smallest window in which `screen` shows a board, for a colour depth."""
    if not depth:
        return os.terminal_size((_board_width(rules, 2) + 1, rules.height + _LEAST_PLAIN_HEADROOM + 2))
    lines = math.ceil((rules.height + _LEAST_HEADROOM) / 2) + 2
    return os.terminal_size((_board_width(rules, 1) + len(_GAP), lines))


def is_shown(rules: Rules, size: os.terminal_size, depth: int) -> bool:
    """Return whether `screen` shows the board in a window of a size, for a colour depth."""
    return _fit(rules, size, depth) is not None


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


def _fit(
    rules: Rules, size: os.terminal_size, depth: int, boards: int = 1, panels: Sequence[int] = (PANEL, 0)
) -> tuple[int, int] | None:
    """The largest cell, in columns, with which boards and panel fit, and the rows shown above the board."""
    if not depth:
        columns = boards * (_board_width(rules, 2) + len(_GAP)) + panels[-1] - len(_GAP)
        headroom = min(HEADROOM, size.lines - 2 - rules.height)
        return (2, headroom) if headroom >= _LEAST_PLAIN_HEADROOM and size.columns > columns else None
    for panel in panels:
        for cell in range(_LARGEST_CELL, 0, -1):
            for headroom in range(HEADROOM, _LEAST_HEADROOM - 1, -1):
                lines = math.ceil((rules.height + headroom) * cell / 2) + 2
                columns = boards * (_board_width(rules, cell) + len(_GAP)) + panel
                if lines <= size.lines and columns <= size.columns:
                    return cell, headroom
    return None


def _board_width(rules: Rules, cell: int) -> int:
    return rules.width * cell + 2


def _board(rules: Rules, kinds: Cells, cell: int, depth: int, name: str) -> list[str]:
    """A board within its walls, all lines of one width, a name in its floor."""
    width = rules.width * cell
    if not depth:
        lines = board_lines(kinds, rules.height)[:-1]
        floor = f"+{name[:width].center(width, '-')}+"
        return [*(line.ljust(width + 2) for line in lines), floor]
    lines = half_blocks(board_picture(kinds, cell), depth == 24)
    above = len(lines) - math.ceil(rules.height * cell / 2)
    sides = [" " if index < above else "│" for index in range(len(lines))]
    walled = [f"{side}{line}{side}" for side, line in zip(sides, lines, strict=True)]
    return [*walled, f"└{name[:width].center(width, '─')}┘"]


def _next_piece(piece: int | None, depth: int) -> list[str]:
    if piece is None or not depth:
        return [f"next: {'-' if piece is None else PIECE_LETTERS[piece]}", ""]
    return ["next", *half_blocks(piece_picture(piece, 2), depth == 24)]
