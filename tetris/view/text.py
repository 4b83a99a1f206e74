"""Games as text: plain characters for a pipe or a log, coloured half blocks for a terminal."""

import math
from collections.abc import Iterable
from itertools import groupby

import numpy as np

from tetris.game.rules import PIECE_LETTERS
from tetris.view.game_view import EMPTY, FALLING, FULL, PAGE, STACK, Cells, Scene, scene_kinds
from tetris.view.images import PALETTE, Picture, board_picture

# A cell has two characters, so that it is about square; all pieces look the same.
_CHARACTERS = {PAGE: "  ", EMPTY: " .", FULL: "==", STACK: "[]", FALLING: "##"}

RESET = "\x1b[0m"

_CODES = [f"2;{red};{green};{blue}" for red, green, blue in PALETTE.tolist()]
"""The end of the escape sequence of each colour; a terminal with fewer takes the nearest."""


def board_lines(kinds: Cells, height: int, cell: int = 2, *, colors: bool = False) -> list[str]:
    """Return a board as lines of text of the same width, the top row first and the floor last.

    Args:
        kinds: The kind of each cell, from `board_kinds`.
        height: The number of rows of the board. Rows above it have no side walls.
        cell: Columns of a cell; without colours it must be 2.
        colors: Whether to draw coloured half blocks, two rows of pixels in a line. Otherwise
            the lines are plain characters, one line per row.
    """
    if colors:
        lines = half_blocks(board_picture(kinds, cell))
        lines_with_walls = math.ceil(height * cell / 2)
        side, left, bottom, right = "│└─┘"
    else:
        # All pieces look the same: they become the first one, STACK at rest and FALLING else.
        first_pieces = np.where(kinds >= FALLING, FALLING, np.minimum(kinds, STACK))
        lines = []
        for row in first_pieces[::-1].tolist():
            lines.append("".join(_CHARACTERS[kind] for kind in row))
        lines_with_walls = height
        side, left, bottom, right = "|+-+"
    framed = []
    for index, line in enumerate(lines):
        wall = side if index >= len(lines) - lines_with_walls else " "
        framed.append(f"{wall}{line}{wall}")
    width = kinds.shape[1] * cell
    return [*framed, f"{left}{bottom * width}{right}"]


def scene_text(scene: Scene) -> str:
    """Return a scene in plain text: a line of counts, and the board with the piece at rest."""
    after = scene.after
    counts = f"piece {scene.pieces} {PIECE_LETTERS[after.piece]}"
    if scene.next_piece is not None:
        counts += f", next {PIECE_LETTERS[scene.next_piece]}"
    counts += f", lines {scene.lines}, games over {scene.games + after.game_over}"
    if after.game_over:
        counts += ", game over"
    height = scene.rules.height
    top = max(height, after.landing_row + after.shape.height)
    board = board_lines(scene_kinds(scene)[:top], height)
    return "\n".join([counts, *map(str.rstrip, board)])


def half_blocks(picture: Picture) -> list[str]:
    """Return a picture as lines for a terminal; a line shows two rows of pixels.

    The page around the board keeps the terminal's own background.
    """
    if len(picture) % 2:  # Add a row of background on top.
        picture = np.vstack([np.full_like(picture[:1], 3 * PAGE), picture])
    return [
        "".join(_runs(top, bottom))
        for top, bottom in zip(picture[::2], picture[1::2], strict=True)
    ]


def _runs(top: Picture, bottom: Picture) -> Iterable[str]:
    """Yield the text of two rows of pixels, the upper and the lower half of a line.

    A character shows two pixels: one in the foreground colour, as a half block, and one in the
    background colour. Neighbouring characters of the same colours share an escape sequence.
    """
    for (upper, lower), run in groupby(zip(top.tolist(), bottom.tolist(), strict=True)):
        front = upper
        back = lower
        block = "▀"
        if upper // 3 == PAGE:  # The page has to be in the background, the terminal's own.
            front = lower
            back = upper
            block = "▄"
        if front // 3 == PAGE or front == back:
            block = " "
        background = "49" if back // 3 == PAGE else f"48;{_CODES[back]}"  # 49 is the default.
        yield f"\x1b[38;{_CODES[front]};{background}m{block * len(list(run))}"
    yield RESET
