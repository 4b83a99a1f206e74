"""The screen of the watcher: the board as large as fits, with a panel of text beside it."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from kernels.support.printable import printable
from tetris.game.features import AfterState
from tetris.game.rules import PIECE_LETTERS, Rules
from tetris.record.explanation import Explanation
from tetris.view.game_view import HEADROOM, Cells, Scene
from tetris.view.images import Picture, board_picture, piece_picture
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


@dataclass(frozen=True)
class Look:
    """How to draw a scene.

    Attributes:
        row: Row of the falling piece's bottom; None: at rest.
        ghost: Whether to outline the falling piece at rest.
        hint: A placement to outline.
    """

    row: int | None = None
    ghost: bool = False
    hint: AfterState | None = None


@dataclass(frozen=True, eq=False)
class Race:
    """A second board beside that of the scene.

    Attributes:
        names: What stands below the boards.
        cells: The stack of the second one, as in `Scene`.
    """

    names: tuple[str, str]
    cells: Cells


def screen(
    scene: Scene,
    look: Look,
    panel: Sequence[str],
    footer: str,
    size: os.terminal_size,
    depth: int,
    race: Race | None = None,
) -> list[str]:
    """Return the lines of the screen, scene beside panel above the footer, for a size and a colour depth.

    A race has its second board between the two, where there is room.
    """
    fit = None if race is None else _fit(scene.rules, size, depth, boards=2, panels=(RACE_PANEL,))
    if fit is None:
        race, fit = None, _fit(scene.rules, size, depth)
    if fit is None:
        least = least_size(scene.rules, depth)
        told = f"the window is too small: {least.columns} x {least.lines} needed, q quits"
        return textwrap.wrap(told, size.columns)[: size.lines]
    cell, headroom = fit
    rows = scene.rules.height + headroom
    name, other = ("", "") if race is None else map(printable, race.names)
    board = _colored(scene, look, cell, rows, depth, name) if depth else _plain(scene, look, rows, name)
    if race is not None:
        stack = race.cells[:rows]
        second = (
            _colored_stack(scene, stack, cell, depth, other) if depth else _plain_stack(scene, stack, other)
        )
        board = [left + _GAP + right for left, right in zip(board, second, strict=True)]
    next_piece = _next_piece(scene, depth)
    width = (1 if race is None else 2) * (_board_width(scene.rules, cell) + len(_GAP))
    room = size.columns - width
    lines = [*next_piece, *map(printable, panel)] if room >= 8 else []
    lines = lines[: size.lines - 1]
    joined = []
    for index in range(max(len(board), len(lines))):
        left = board[index] if index < len(board) else " " * (width - len(_GAP))
        right = lines[index] if index < len(lines) else ""
        # The lines of the next piece hold escape sequences; they are eight columns wide, which is there.
        joined.append(left + _GAP + (right if index < len(next_piece) else right[:room]))
    joined += [""] * (size.lines - 1 - len(joined))
    return [*joined, footer[: size.columns - 1]]


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
    """Return a table: the margin of a placement, its value, its features, the most decisive ones first.

    Args:
        explanation: The explanation of the placement.
        room: Lines available.
    """
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


def _colored(scene: Scene, look: Look, cell: int, rows: int, depth: int, name: str) -> list[str]:
    picture = board_picture(
        scene.cells[:rows],
        cell,
        height=scene.rules.height,
        falling=scene.after,
        row=look.row,
        full=scene.full if look.row in (None, scene.after.landing_row) else (),
        ghost=look.ghost,
        hint=look.hint,
    )
    return _walled(scene, picture, cell, depth, name)


def _colored_stack(scene: Scene, stack: Cells, cell: int, depth: int, name: str) -> list[str]:
    return _walled(scene, board_picture(stack, cell, height=scene.rules.height), cell, depth, name)


def _walled(scene: Scene, picture: Picture, cell: int, depth: int, name: str) -> list[str]:
    lines = half_blocks(picture, depth == 24)
    above = len(lines) - math.ceil(scene.rules.height * cell / 2)
    sides = [" " if index < above else "│" for index in range(len(lines))]
    walled = [f"{side}{line}{side}" for side, line in zip(sides, lines, strict=True)]
    width = scene.rules.width * cell
    return [*walled, f"└{name[:width].center(width, '─')}┘"]


def _plain(scene: Scene, look: Look, rows: int, name: str) -> list[str]:
    lines = board_lines(
        scene.cells[:rows],
        scene.rules.height,
        falling=scene.after,
        row=look.row,
        full=scene.full if look.row in (None, scene.after.landing_row) else (),
        hint=look.hint,
    )
    return _named(scene, lines, name)


def _plain_stack(scene: Scene, stack: Cells, name: str) -> list[str]:
    return _named(scene, board_lines(stack, scene.rules.height), name)


def _named(scene: Scene, lines: Sequence[str], name: str) -> list[str]:
    width = 2 * scene.rules.width
    floor = f"+{name[:width].center(width, '-')}+"
    return [*(line.ljust(_board_width(scene.rules, 2)) for line in lines[:-1]), floor]


def _next_piece(scene: Scene, depth: int) -> list[str]:
    if scene.next_piece is None or not depth:
        return ["next: -" if scene.next_piece is None else f"next: {PIECE_LETTERS[scene.next_piece]}", ""]
    return ["next", *half_blocks(piece_picture(scene.next_piece, 2), depth == 24)]
