"""Pictures of a game as text: plain characters for a pipe or a log, coloured half blocks for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import groupby

import numpy as np

from tetris.game.rules import PIECE_LETTERS
from tetris.view.game_view import EMPTY, FALLING, FULL, PAGE, STACK, Cells, Scene, scene_kinds
from tetris.view.images import PALETTE, Picture, board_picture

# Two characters each, so that a cell is about square; the pieces have one look.
_CHARACTERS = {PAGE: "  ", EMPTY: " .", FULL: "==", STACK: "[]", FALLING: "##"}

RESET = "\x1b[0m"

_CODES = [f"2;{red};{green};{blue}" for red, green, blue in PALETTE.tolist()]
"""The end of the escape sequence of each colour, in 24 bits: a terminal that has fewer takes the nearest."""


def board_lines(kinds: Cells, height: int, cell: int = 2, *, colors: bool = False) -> list[str]:
    """Return `board_kinds` as text, lines of one width, the topmost first, and the floor.

    Rows from ``height`` on have no side walls. With colours they are half blocks, ``cell`` the columns of
    a cell, otherwise plain characters, a line a row.
    """
    if colors:
        lines, add_walls = half_blocks(board_picture(kinds, cell)), math.ceil(height * cell / 2)
        side, left, bottom, right = "│└─┘"
    else:
        # Of any piece the look of the first.
        looks = np.where(kinds >= FALLING, FALLING, np.minimum(kinds, STACK))
        lines, add_walls = ["".join(_CHARACTERS[kind] for kind in row) for row in looks[::-1].tolist()], height
        side, left, bottom, right = "|+-+"
    above, width = len(lines) - add_walls, kinds.shape[1] * cell
    sides = [" " if index < above else side for index in range(len(lines))]
    floor = f"{left}{bottom * width}{right}"
    return [*(f"{wall}{line}{wall}" for wall, line in zip(sides, lines, strict=True)), floor]


def scene_text(scene: Scene) -> str:
    """Return a scene in plain text: the counts, the board with the piece at rest, full rows marked."""
    height = scene.rules.height
    top = max(height, scene.after.landing_row + scene.after.shape.height)
    next_piece = "" if scene.next_piece is None else f", next {PIECE_LETTERS[scene.next_piece]}"
    over = ", game over" if scene.after.game_over else ""
    counts = (
        f"piece {scene.pieces} {PIECE_LETTERS[scene.after.shape.piece]}{next_piece}, "
        f"lines {scene.lines}, games over {scene.games + scene.after.game_over}{over}"
    )
    return "\n".join([counts, *map(str.rstrip, board_lines(scene_kinds(scene)[:top], height))])


def half_blocks(picture: Picture) -> list[str]:
    """Return a picture as lines for a terminal, two rows of pixels a line.

    The page around the board is left in the terminal's own background.
    """
    if len(picture) % 2:
        picture = np.vstack([np.full_like(picture[:1], 3 * PAGE), picture])
    return ["".join(_runs(top, bottom)) for top, bottom in zip(picture[::2], picture[1::2], strict=True)]


def _runs(top: Picture, bottom: Picture) -> Iterable[str]:
    for (upper, lower), run in groupby(zip(top.tolist(), bottom.tolist(), strict=True)):
        # The page is always the background: that of the terminal.
        flipped = upper // 3 == PAGE
        front, back = (lower, upper) if flipped else (upper, lower)
        background = "49" if back // 3 == PAGE else f"48;{_CODES[back]}"
        block = " " if front // 3 == PAGE or front == back else "▄" if flipped else "▀"
        yield f"\x1b[38;{_CODES[front]};{background}m{block * len(list(run))}"
    yield RESET
