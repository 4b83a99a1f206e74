"""Pictures of a game as text: plain characters for a pipe or a log, coloured half blocks for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby, product

import numpy as np

from tetris.game.rules import PIECE_LETTERS
from tetris.view.game_view import EMPTY, FALLING, FULL, PAGE, STACK, Cells, Scene, scene_kinds
from tetris.view.images import PALETTE, Picture, board_picture

# Two characters each, so that a cell is about square; the pieces have one look.
_CHARACTERS = {PAGE: "  ", EMPTY: " .", FULL: "==", STACK: "[]", FALLING: "##"}

RESET = "\x1b[0m"

_LEVELS = (0, 95, 135, 175, 215, 255)
# Of 256 colours, those from 16 on: a cube of these levels, and 24 greys.
_COLORS = np.array([*product(_LEVELS, repeat=3), *((8 + 10 * grey,) * 3 for grey in range(24))])


def board_lines(kinds: Cells, height: int, depth: int = 0, cell: int = 2) -> list[str]:
    """Return `board_kinds` as text, lines of one width, the topmost first, and the floor.

    Rows from ``height`` on have no side walls. With 24 or 8 bits of colour they are half blocks and ``cell``
    the columns of a cell, otherwise plain characters, a line a row.
    """
    if depth:
        lines, walled = half_blocks(board_picture(kinds, cell), depth == 24), math.ceil(height * cell / 2)
        side, left, bottom, right = "│└─┘"
    else:
        looks = np.where(
            kinds >= FALLING, FALLING, np.minimum(kinds, STACK)
        )  # of any piece, that of the first
        lines, walled = ["".join(_CHARACTERS[kind] for kind in row) for row in looks[::-1].tolist()], height
        side, left, bottom, right = "|+-+"
    above, width = len(lines) - walled, kinds.shape[1] * cell
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


def half_blocks(picture: Picture, true_color: bool) -> list[str]:
    """Return a picture as lines for a terminal, two rows of pixels a line.

    The page around the board is left in the terminal's own background. Without ``true_color`` colours are the
    nearest of 256.
    """
    if len(picture) % 2:
        picture = np.vstack([np.full_like(picture[:1], 3 * PAGE), picture])
    colors = _codes(true_color)
    return [
        "".join(_runs(top, bottom, colors)) for top, bottom in zip(picture[::2], picture[1::2], strict=True)
    ]


def _runs(top: Picture, bottom: Picture, codes: list[str]) -> Iterable[str]:
    for (upper, lower), run in groupby(zip(top.tolist(), bottom.tolist(), strict=True)):
        # The page is always the background: that of the terminal.
        flipped = upper // 3 == PAGE
        front, back = (lower, upper) if flipped else (upper, lower)
        background = "49" if back // 3 == PAGE else f"48;{codes[back]}"
        block = " " if front // 3 == PAGE or front == back else "▄" if flipped else "▀"
        yield f"\x1b[38;{codes[front]};{background}m{block * len(list(run))}"
    yield RESET


@lru_cache
def _codes(true_color: bool) -> list[str]:
    """The end of the escape sequence of each colour, or of the nearest of 256."""
    if true_color:
        return [f"2;{red};{green};{blue}" for red, green, blue in PALETTE.tolist()]
    distances = ((PALETTE[:, None].astype(int) - _COLORS) ** 2).sum(axis=2)
    return [f"5;{16 + number}" for number in distances.argmin(axis=1)]
