"""Pictures of a game as arrays: for GIF, video, a terminal, or an environment. Needs NumPy only.

A picture is an array of indices into `PALETTE`: ``PALETTE[picture]`` is the picture in red, green and blue. A
GIF holds the same palette, and a terminal leaves the page's background out.
"""

from __future__ import annotations

import textwrap

import numpy as np
import numpy.typing as npt

from tetris.game.pieces import PIECES
from tetris.view.game_view import (
    FAINT,
    FALLING,
    FRAME,
    HEADROOM,
    PAGE,
    TEXT,
    Cells,
    Scene,
    scene_kinds,
    shape_cells,
)
from tetris.view.glyphs import HEIGHT as GLYPH_HEIGHT
from tetris.view.glyphs import WIDTH as GLYPH_WIDTH
from tetris.view.glyphs import drawn_text, text_pixels

Picture = npt.NDArray[np.uint8]

PIECE_COLORS = ("2bc4d8", "e6c229", "a05be0", "e2504a", "4fbf5b", "4476e0", "ee8a2c")
"""Colour of each piece, in the order of their numbers."""

_PANEL_CHARACTERS = 14
_SMALL = 6  # pixels: in a smaller cell edges would leave little of the inside


def _rgb(color: str) -> tuple[int, int, int]:
    return int(color[0:2], 16), int(color[2:4], 16), int(color[4:6], 16)


def _mixed(color: str, other: str, share: float) -> str:
    pairs = zip(_rgb(color), _rgb(other), strict=True)
    return "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _palette() -> npt.NDArray[np.uint8]:
    """Three colours for each kind of cell: the inside, the lit edge above and left, the one in the shade."""
    page, empty, line = "16181d", "1f232b", "282d37"
    flat = [(page,) * 3, (empty, empty, line), ("4a5160",) * 3, ("e8eaf0",) * 3, ("8b93a5",) * 3]
    full = ("dde3f0", "ffffff", "b4bccd")
    ghost = ("3a4150", "7d8597", "7d8597")
    hint = ("c9cfdb", "ffffff", "ffffff")
    stack = [_mixed(color, empty, 0.22) for color in (*PIECE_COLORS, "a3abbd")]
    pieces = [
        (color, _mixed(color, "ffffff", 0.35), _mixed(color, "000000", 0.3))
        for color in (*stack, *PIECE_COLORS)
    ]
    return np.array([_rgb(color) for kind in (*flat, full, ghost, hint, *pieces) for color in kind], np.uint8)


PALETTE = _palette()
"""Shape (colours, 3), uint8: three for each kind of cell, so index 3 * kind is the inside of a kind."""


def board_picture(kinds: Cells, cell: int) -> Picture:
    """Return `board_kinds` as a picture: indices into `PALETTE`, shape (rows * cell, width * cell)."""
    edges = np.zeros((cell, cell), dtype=np.uint8)
    if 1 < cell < _SMALL:
        edges[0, 0], edges[-1, -1] = 1, 2
    elif cell > 1:
        width = max(1, cell // 10)
        edges[:, -width:] = edges[-width:] = 2
        edges[:-width, :width] = edges[:width, :-width] = 1
    enlarged = 3 * kinds[::-1].repeat(cell, axis=0).repeat(cell, axis=1)
    return enlarged + np.tile(edges, kinds.shape)


def piece_picture(piece: int, cell: int) -> Picture:
    """Return a piece as it comes, in the middle of a square of 4 x 4 cells."""
    shape = PIECES[piece][0]
    kinds = np.full((4, 4), PAGE, dtype=np.uint8)
    for x, y in shape_cells(shape):
        kinds[(4 - shape.height) // 2 + y, (4 - shape.width) // 2 + x] = FALLING + piece
    return board_picture(kinds, cell)


def frame(scene: Scene, title: str = "", cell: int = 12) -> Picture:
    """Return a whole picture of a scene: the board in its frame, the next piece, the counts.

    Args:
        scene: The scene.
        title: The title, in as many lines of 14 characters as it takes.
        cell: Size of a cell in pixels, at least 6.

    Returns:
        Indices into `PALETTE`; width and height are even, as video wants them, and the same for every scene
        under the same rules and title.
    """
    board = board_picture(scene_kinds(scene), cell)
    edge, gap, scale = max(2, cell // 4), cell, max(1, cell // 6)
    line = (GLYPH_HEIGHT + 3) * scale
    panel = (GLYPH_WIDTH + 1) * scale * _PANEL_CHARACTERS
    titles = textwrap.wrap(drawn_text(title), _PANEL_CHARACTERS) or [""]
    shape = (
        max(board.shape[0] + edge, (10 + len(titles)) * line + 4 * cell) + 2 * gap,
        board.shape[1] + 2 * edge + panel + 3 * gap,
    )
    picture = np.full([size + size % 2 for size in shape], 3 * PAGE, dtype=np.uint8)
    top, left = gap, gap + edge
    bottom, right = top + board.shape[0], left + board.shape[1]
    picture[top + HEADROOM * cell : bottom + edge, left - edge : right + edge] = 3 * FRAME
    picture[top:bottom, left:right] = board

    x, y = right + edge + gap, top
    for text in titles:
        _write(picture, text, x, y, scale, TEXT)
        y += line
    y -= line
    _write(picture, f"{scene.rules.board} {scene.rules.pieces}", x, y + line, scale, FAINT)
    _write(picture, "NEXT", x, y + 3 * line, scale, FAINT)
    if scene.next_piece is not None:
        next_piece = piece_picture(scene.next_piece, cell)
        picture[y + 4 * line : y + 4 * line + 4 * cell, x : x + 4 * cell] = next_piece
    y += 5 * line + 4 * cell
    for name, count in (("LINES", scene.lines), ("PIECES", scene.pieces), ("GAMES OVER", scene.games)):
        _write(picture, name, x, y, scale, FAINT)
        _write(picture, f"{count:,}", x, y + line, scale, TEXT)
        y += 2 * line
    return picture


def _write(picture: Picture, text: str, x: int, y: int, scale: int, kind: int) -> None:
    # Cut once it is drawn: text may take more characters then, or fewer.
    pixels = text_pixels(text, scale)[:, : (GLYPH_WIDTH + 1) * scale * _PANEL_CHARACTERS]
    height, width = pixels.shape
    picture[y : y + height, x : x + width][pixels] = 3 * kind
