"""Games as text: plain characters for a pipe or a log, coloured half blocks for a terminal.

A half block is a character whose upper or lower half has the foreground colour. So one
character shows two pixels.
"""

import math
from collections.abc import Iterable
from itertools import groupby

import numpy as np

from tetris.game.rules import PIECE_LETTERS
from tetris.view.game_view import EMPTY, FALLING, FULL, PAGE, STACK, Cells, Scene, scene_kinds
from tetris.view.images import PALETTE, Picture, board_picture

# A cell has two characters, so that it is about square. All pieces look the same.
_CHARACTERS = {PAGE: "  ", EMPTY: " .", FULL: "==", STACK: "[]", FALLING: "##"}

RESET = "\x1b[0m"

_CODES = [f"2;{red};{green};{blue}" for red, green, blue in PALETTE.tolist()]
"""The end of the escape sequence of each colour in `PALETTE`.

A terminal with fewer colours shows the nearest one.
"""


def board_lines(kinds: Cells, height: int, cell: int | None = None) -> list[str]:
    """Return a board as lines of text of the same width, the top row first and the floor last.

    Args:
        kinds: The kind of each cell, such as empty or part of an S piece, from `board_kinds`:
            shape (rows, width), row 0 at the bottom.
        height: The number of rows of the board. Rows above it have no side walls.
        cell: The columns of a cell, in coloured half blocks with two rows of pixels in a line.
            None: the lines are plain characters, with one row of cells in a line.
    """
    if cell is not None:
        lines = half_blocks(board_picture(kinds, cell))
        lines_with_walls = math.ceil(height * cell / 2)  # A line shows two rows of pixels.
        wall = "│"
        floor = "└" + "─" * (kinds.shape[1] * cell) + "┘"
    else:
        # In plain text all pieces look the same. The kinds of resting pieces are STACK and
        # greater numbers, and those of falling pieces are FALLING and greater numbers.
        simple_kinds = np.where(kinds >= FALLING, FALLING, np.minimum(kinds, STACK))
        lines = []
        for row in simple_kinds[::-1].tolist():
            lines.append("".join(_CHARACTERS[kind] for kind in row))
        lines_with_walls = height
        wall = "|"
        floor = "+" + "-" * len(lines[0]) + "+"
    lines_above = len(lines) - lines_with_walls
    framed = []
    for index, line in enumerate(lines):
        side = " " if index < lines_above else wall
        framed.append(f"{side}{line}{side}")
    return [*framed, floor]


def scene_text(scene: Scene) -> str:
    """Return one placement of a game as plain text: a line of counts, then the board.

    The board shows the piece where it came to rest, before full rows are removed. The counts
    include the placement.
    """
    after = scene.after
    counts = f"piece {scene.pieces} {PIECE_LETTERS[after.piece]}"
    if scene.next_piece is not None:
        counts += f", next {PIECE_LETTERS[scene.next_piece]}"
    games_over = scene.games + after.game_over  # `scene.games` is the number before.
    counts += f", lines {scene.lines}, games over {games_over}"
    if after.game_over:
        counts += ", game over"
    height = scene.rules.height
    # A piece that ends the game can reach above the board. Then show the rows there, too.
    kinds = scene_kinds(scene)[: max(height, after.top)]
    board = [line.rstrip() for line in board_lines(kinds, height)]
    return "\n".join([counts, *board])


def half_blocks(picture: Picture) -> list[str]:
    """Return a picture as lines of text for a terminal. A line shows two rows of pixels.

    The page around the board has the terminal's own background colour.
    """
    if len(picture) % 2:  # Add a row of background on top, so that the number is even.
        picture = np.vstack([np.full_like(picture[:1], 3 * PAGE), picture])
    upper_rows = picture[::2]
    lower_rows = picture[1::2]
    return [
        "".join(_terminal_line(upper_row, lower_row))
        for upper_row, lower_row in zip(upper_rows, lower_rows, strict=True)
    ]


def _terminal_line(upper_row: Picture, lower_row: Picture) -> Iterable[str]:
    """Yield the parts of a line of a terminal that shows two rows of pixels in colour.

    A character shows a pixel of the upper row and the pixel below it. It is a half block: its
    foreground colour fills one half, and its background colour fills the other half. A part of
    the line is an escape sequence that sets the two colours, and adjacent characters with these
    colours.

    A pixel is an index into the palette, which has three colours for each kind of cell, so
    pixel // 3 is the kind of the cell. Pixels of the kind `PAGE`, around the board, get the
    terminal's own background colour, so they must be in the background of a character.
    """
    pairs = zip(upper_row.tolist(), lower_row.tolist(), strict=True)
    # Join adjacent pairs of pixels that are equal.
    for (upper, lower), equal_pairs in groupby(pairs):
        if upper // 3 == PAGE:
            character = "▄"  # The lower half is in the foreground.
            foreground = lower
            background = upper
        else:
            character = "▀"  # The upper half is in the foreground.
            foreground = upper
            background = lower
        if foreground // 3 == PAGE or foreground == background:
            character = " "  # It shows the background only.
        # In an escape sequence 38 and a colour code set the foreground, 48 and a colour code
        # set the background, and 49 sets the terminal's own background.
        background_code = f"48;{_CODES[background]}"
        if background // 3 == PAGE:
            background_code = "49"
        count = len(list(equal_pairs))
        yield f"\x1b[38;{_CODES[foreground]};{background_code}m{character * count}"
    yield RESET
