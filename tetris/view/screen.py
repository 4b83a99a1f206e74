"""The screen of the watcher: the board as large as fits, with a panel of text beside it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from tetris.explanation import Explanation
from tetris.features import AfterState
from tetris.printable import printable
from tetris.rules import PIECE_LETTERS
from tetris.view.game_view import HEADROOM, Scene
from tetris.view.images import board_picture, piece_picture
from tetris.view.text import board_lines, half_blocks

PANEL = 39
"""Columns of the panel; it is cut where there are fewer, and dropped where there is no room."""

PANEL_HEAD = 13
"""Lines of the screen that are not free for features: the panel's first ones, the footer."""

IDLE = 0.25
"""Seconds between two looks at the window's size while nothing moves."""

_GAP = "  "
_NAME = 24  # columns of a feature's name
_LEAST_HEADROOM = 2
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


def screen(
    scene: Scene, look: Look, panel: Sequence[str], footer: str, size: os.terminal_size, depth: int
) -> list[str]:
    """Return the lines of the screen, scene beside panel above the footer, for a size and a colour depth."""
    fit = _fit(scene, size, depth)
    if fit is None:
        return ["the window is too small"[: size.columns]]
    cell, headroom = fit
    rows = scene.rules.height + headroom
    board = _colored(scene, look, cell, rows, depth) if depth else _plain(scene, look, rows)
    next_piece = _next_piece(scene, depth)
    width = _board_width(scene, cell) + len(_GAP)
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


def _fit(scene: Scene, size: os.terminal_size, depth: int) -> tuple[int, int] | None:
    """The largest cell, in columns, with which the board fits, and the rows shown above the board."""
    if not depth:
        fits = size.lines >= scene.rules.height + 2 and size.columns > _board_width(scene, 2)
        return (2, max(0, min(HEADROOM, size.lines - 2 - scene.rules.height))) if fits else None
    for panel in (PANEL, 0):
        for cell in range(_LARGEST_CELL, 0, -1):
            for headroom in range(HEADROOM, _LEAST_HEADROOM - 1, -1):
                lines = math.ceil((scene.rules.height + headroom) * cell / 2) + 2
                columns = _board_width(scene, cell) + len(_GAP) + panel
                if lines <= size.lines and columns <= size.columns:
                    return cell, headroom
    return None


def _board_width(scene: Scene, cell: int) -> int:
    return scene.rules.width * cell + 2


def _colored(scene: Scene, look: Look, cell: int, rows: int, depth: int) -> list[str]:
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
    lines = half_blocks(picture, depth == 24)
    above = len(lines) - math.ceil(scene.rules.height * cell / 2)
    sides = [" " if index < above else "│" for index in range(len(lines))]
    walled = [f"{side}{line}{side}" for side, line in zip(sides, lines, strict=True)]
    return [*walled, f"└{'─' * (scene.rules.width * cell)}┘"]


def _plain(scene: Scene, look: Look, rows: int) -> list[str]:
    lines = board_lines(
        scene.cells[:rows],
        scene.rules.height,
        falling=scene.after,
        row=look.row,
        full=scene.full if look.row in (None, scene.after.landing_row) else (),
        hint=look.hint,
    )
    return [line.ljust(_board_width(scene, 2)) for line in lines]


def _next_piece(scene: Scene, depth: int) -> list[str]:
    if scene.next_piece is None or not depth:
        return ["next: -" if scene.next_piece is None else f"next: {PIECE_LETTERS[scene.next_piece]}", ""]
    return ["next", *half_blocks(piece_picture(scene.next_piece, 2), depth == 24)]
