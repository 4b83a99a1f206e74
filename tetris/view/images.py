"""Pictures of a game: arrays, for a terminal or an environment, which need NumPy only; GIF and MP4.

A picture is an array of indices into `PALETTE`: ``PALETTE[picture]`` is the picture in red, green and blue. A
GIF holds the same palette, and a terminal leaves the page's background out.
"""

from __future__ import annotations

import io
import tempfile
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import closing
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.support.files import write_bytes
from tetris.game.pieces import PIECES
from tetris.view.game_view import FAINT, FALLING, FRAME, HEADROOM, PAGE, TEXT, Cells, Scene, put, scene_kinds

Picture = npt.NDArray[np.uint8]

PIECE_COLORS = ("2bc4d8", "e6c229", "a05be0", "e2504a", "4fbf5b", "4476e0", "ee8a2c")
"""Colour of each piece, in the order of their numbers."""

_FASTEST_GIF = 50.0

_PANEL_CHARACTERS = 14
_GLYPH_WIDTH, _GLYPH_HEIGHT = 3, 5
_SMALL = 6  # pixels: in a smaller cell edges would leave little of the inside


def _mixed(color: str, other: str, share: float) -> str:
    pairs = zip(bytes.fromhex(color), bytes.fromhex(other), strict=True)
    return bytes(round(a + (b - a) * share) for a, b in pairs).hex()


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
    colors = (color for kind in (*flat, full, ghost, hint, *pieces) for color in kind)
    return np.array([list(bytes.fromhex(color)) for color in colors], np.uint8)


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
    put(kinds, shape, (4 - shape.width) // 2, (4 - shape.height) // 2, FALLING + piece)
    return board_picture(kinds, cell)


def frame(scene: Scene, title: str = "", cell: int = 12) -> Picture:
    """Return a whole picture of a scene: the board in its frame, the title, the next piece, the counts.

    It holds indices into `PALETTE`. Width and height are even, as video wants them, and the same for every
    scene under the same rules and title. The cell is in pixels, at least 6.
    """
    board = board_picture(scene_kinds(scene), cell)
    edge, gap, scale = max(2, cell // 4), cell, max(1, cell // 6)
    line = (_GLYPH_HEIGHT + 3) * scale
    panel = (_GLYPH_WIDTH + 1) * scale * _PANEL_CHARACTERS
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

    x, y = right + edge + gap, top + (len(titles) + 3) * line
    if scene.next_piece is not None:
        picture[y : y + 4 * cell, x : x + 4 * cell] = piece_picture(scene.next_piece, cell)
    written = [(text, top + number * line, TEXT) for number, text in enumerate(titles)]
    written += [(f"{scene.rules.board} {scene.rules.pieces}", y - 3 * line, FAINT), ("NEXT", y - line, FAINT)]
    counts = {"LINES": scene.lines, "PIECES": scene.pieces, "GAMES OVER": scene.games}
    for number, (name, count) in enumerate(counts.items()):
        row = y + 4 * cell + (1 + 2 * number) * line
        written += [(name, row, FAINT), (f"{count:,}", row + line, TEXT)]
    for text, row, kind in written:
        # Cut once it is drawn: text may take more characters then, or fewer.
        pixels = text_pixels(text, scale)[:, :panel]
        picture[row : row + pixels.shape[0], x : x + pixels.shape[1]][pixels] = 3 * kind
    return picture


def check_gif(speed: float) -> None:
    """Raise ValueError where Pillow is not installed, or a speed is beyond what viewers show."""
    if speed > _FASTEST_GIF:
        raise ValueError(f"expected a speed of at most {_FASTEST_GIF:g} for a GIF, got {speed:g}")
    _check_installed("PIL.Image", "a GIF needs Pillow")


def check_mp4() -> None:
    """Raise ValueError where imageio-ffmpeg is not installed."""
    _check_installed("imageio_ffmpeg", "an MP4 needs imageio-ffmpeg")


def _check_installed(module: str, need: str) -> None:
    try:
        import_module(module)
    except ImportError as error:
        raise ValueError(f'{need}: pip install -e ".[watch]"') from error


def write_gif(path: Path, scenes: Iterable[Scene], title: str, speed: float) -> None:
    """Write a looping GIF, a picture a piece, atomically; ``speed`` is in pieces per second, at most 50."""
    from PIL import Image

    def images() -> Iterator[Image.Image]:
        for scene in scenes:
            image = Image.fromarray(frame(scene, title))
            image.putpalette(PALETTE.tobytes())
            yield image

    save_gif(path, images(), speed)


def save_gif(path: Path, images: Iterator[Any], speed: float) -> None:
    """Write images of Pillow as a looping GIF, atomically; ``speed`` is in images per second."""
    first, file = next(images), io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=images, duration=round(1000 / speed), loop=0)
    write_bytes(path, file.getvalue())


def write_mp4(path: Path, scenes: Iterable[Scene], title: str, speed: float) -> None:
    """Write a video in H.264, a picture a piece; see `write_gif`."""
    from imageio_ffmpeg import write_frames

    pictures = (frame(scene, title, cell=24) for scene in scenes)
    first = next(pictures)
    size = first.shape[1], first.shape[0]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "video.mp4"
        # Any even size is fine for H.264; by default pictures would be scaled to multiples of 16.
        frames = write_frames(str(file), size, fps=speed, codec="libx264", quality=8, macro_block_size=2)
        with closing(frames) as writer:  # after Ctrl-C, too: its process writes into the folder
            writer.send(None)
            for picture in chain([first], pictures):
                writer.send(np.ascontiguousarray(PALETTE[picture]))
        write_bytes(path, file.read_bytes())


# The font of the words in a picture, ASCII in capitals, which needs no font library.
# Five octal digits a glyph, the rows from the top; the bits of a digit are the three pixels, left to right.
_GLYPHS = {
    **{" ": 0o00000, "-": 0o00700, ".": 0o00002, ",": 0o00024, ":": 0o02020, "/": 0o11244, "+": 0o02720},
    **{"0": 0o75557, "1": 0o26227, "2": 0o71747, "3": 0o71717, "4": 0o55711},
    **{"5": 0o74717, "6": 0o74757, "7": 0o71111, "8": 0o75757, "9": 0o75717},
    **{"A": 0o25755, "B": 0o65656, "C": 0o34443, "D": 0o65556, "E": 0o74647, "F": 0o74644, "G": 0o34553},
    **{"H": 0o55755, "I": 0o72227, "J": 0o11152, "K": 0o55655, "L": 0o44447, "M": 0o57755, "N": 0o65555},
    **{"O": 0o25552, "P": 0o65644, "Q": 0o25573, "R": 0o65655, "S": 0o34216, "T": 0o72222, "U": 0o55557},
    **{"V": 0o55552, "W": 0o55775, "X": 0o55255, "Y": 0o55222, "Z": 0o71247, "_": 0o00007, "?": 0o71302},
    **{"(": 0o12221, ")": 0o42224, "[": 0o64446, "]": 0o31113, "{": 0o32623, "}": 0o62326, "<": 0o12421},
    **{">": 0o42124, "=": 0o07070, "!": 0o22202, "#": 0o57575, "$": 0o36736, "%": 0o51245, "&": 0o25253},
    **{"'": 0o22000, '"': 0o55000, "*": 0o52500, ";": 0o02024, "@": 0o25743, "^": 0o25000, "`": 0o42000},
    **{"|": 0o22222, "~": 0o03600, "\\": 0o44211},
}


def text_pixels(text: str, scale: int) -> npt.NDArray[np.bool_]:
    """Return a line of text as pixels, shape (5 * scale, 4 * scale * characters of `drawn_text`).

    A column is left free behind each; a character that the font lacks is drawn as a question mark.
    """
    drawn = drawn_text(text)
    pixels = np.zeros((_GLYPH_HEIGHT, (_GLYPH_WIDTH + 1) * len(drawn)), dtype=np.bool_)
    for position, character in enumerate(drawn):
        bits = np.array([*f"{_GLYPHS.get(character, _GLYPHS['?']):015b}"]) == "1"
        left = position * (_GLYPH_WIDTH + 1)
        pixels[:, left : left + _GLYPH_WIDTH] = bits.reshape(_GLYPH_HEIGHT, _GLYPH_WIDTH)
    return pixels.repeat(scale, axis=0).repeat(scale, axis=1)


def drawn_text(text: str) -> str:
    """Return a text in capitals, its letters without accents."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(character for character in decomposed if not unicodedata.combining(character)).upper()
