"""Pictures of a game as text: plain characters for a pipe or a log, coloured half blocks for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby

import numpy as np

from tetris.game.rules import PIECE_LETTERS
from tetris.view.game_view import EMPTY, FALLING, FULL, HINT, PAGE, STACK, Cells, Scene, scene_kinds
from tetris.view.images import PALETTE, Picture

# Two characters each, so that a cell is about square; the pieces have one look.
_CHARACTERS = {PAGE: "  ", EMPTY: " .", FULL: "==", HINT: "<>", STACK: "[]", FALLING: "##"}

RESET = "\x1b[0m"

_LEVELS = np.array([0, 95, 135, 175, 215, 255])  # of each colour in the 6 x 6 x 6 cube of 256 colours


def board_lines(kinds: Cells, height: int) -> list[str]:
    """Return `board_kinds` in plain characters, a line a row, the topmost first, and the floor.

    Rows from ``height`` on have no side walls.
    """
    looks = np.where(kinds >= STACK, kinds - kinds % 8, kinds)  # of any piece, that of the first
    lines = ["".join(_CHARACTERS[kind] for kind in row) for row in looks.tolist()]
    walled = [f"|{line}|" if y < height else f" {line}".rstrip() for y, line in enumerate(lines)]
    return [*reversed(walled), f"+{'--' * kinds.shape[1]}+"]


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
    return "\n".join([counts, *board_lines(scene_kinds(scene)[:top], height)])


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


def _runs(top: Picture, bottom: Picture, colors: list[str | None]) -> Iterable[str]:
    for (upper, lower), run in groupby(zip(top.tolist(), bottom.tolist(), strict=True)):
        length = len(list(run))
        above, below = colors[upper], colors[lower]
        if above is None and below is None:
            yield f"{RESET}{' ' * length}"
        elif above is None:
            yield f"{RESET}\x1b[38;{below}m{'▄' * length}"
        elif below is None:
            yield f"{RESET}\x1b[38;{above}m{'▀' * length}"
        elif above == below:
            yield f"\x1b[48;{below}m{' ' * length}"
        else:
            yield f"\x1b[38;{above};48;{below}m{'▀' * length}"
    yield RESET


@lru_cache
def _codes(true_color: bool) -> list[str | None]:
    """The end of the escape sequence of each colour; None for the page, which keeps the terminal's."""
    codes = [
        f"2;{red};{green};{blue}" if true_color else f"5;{_nearest_of_256(red, green, blue)}"
        for red, green, blue in PALETTE.tolist()
    ]
    return [None if index // 3 == PAGE else code for index, code in enumerate(codes)]


def _nearest_of_256(red: int, green: int, blue: int) -> int:
    """The number of the nearest colour: of the cube from 16 on, or of the 24 greys from 232 on."""
    color = np.array([red, green, blue])
    cube = np.abs(_LEVELS - color[:, None]).argmin(axis=1)
    grey = int(np.clip(round((color.mean() - 8) / 10), 0, 23))
    cube_error = np.abs(_LEVELS[cube] - color).sum()
    grey_error = np.abs(8 + 10 * grey - color).sum()
    if grey_error < cube_error:
        return 232 + grey
    return int(16 + 36 * cube[0] + 6 * cube[1] + cube[2])
