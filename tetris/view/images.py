"""Pictures of a game: arrays, for a terminal or an environment; GIF and MP4.

A picture is an array of indices into `PALETTE`: ``PALETTE[picture]`` is the picture in red,
green and blue. A GIF holds the same palette, and a terminal leaves the page's background out.
"""

import io
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import lru_cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from kernels.support.files import write_bytes
from kernels.support.printable import printable
from tetris.game.pieces import PIECES
from tetris.view.game_view import (
    EMPTY,
    FAINT,
    FALLING,
    FRAME,
    HEADROOM,
    PAGE,
    TEXT,
    Cells,
    Scene,
    put,
    scene_kinds,
)

Picture = npt.NDArray[np.uint8]

PIECE_COLORS = ("2bc4d8", "e6c229", "a05be0", "e2504a", "4fbf5b", "4476e0", "ee8a2c")
"""Colour of each piece, in the order of their numbers."""

_FASTEST_GIF = 50.0
_CLEAR = 255  # The colour of a GIF that leaves what was there.

_PANEL_CHARACTERS = 18
_SMALL = 6  # Pixels; in a smaller cell wide edges would leave little of the inside.
_SHADES = 6  # Colours of a letter's edge, from the page's to its own.


def _mix(color: str, other: str, share: float) -> str:
    pairs = zip(bytes.fromhex(color), bytes.fromhex(other), strict=True)
    return bytes(round(a + (b - a) * share) for a, b in pairs).hex()


def _palette() -> npt.NDArray[np.uint8]:
    """Return the colours of all pictures: shape (colours, 3), red, green and blue, uint8.

    Every kind of cell has three colours in a row: its inside, its lit edge, and its edge in the
    shade. After the colours of all kinds come the same colours in grey, for boards on which the
    game is over, and then the shades of letters, from the page's colour to that of the letter.
    """
    empty = "1f232b"
    cell_colors = [
        ("16181d", "16181d", "16181d"),  # The page around the board.
        (empty, empty, "282d37"),
        ("4a5160", "4a5160", "4a5160"),  # The frame.
        ("e8eaf0", "e8eaf0", "e8eaf0"),  # Text.
        ("8b93a5", "8b93a5", "8b93a5"),  # Faint text.
        ("dde3f0", "ffffff", "b4bccd"),  # A full row, which is about to be removed.
    ]
    # A piece is a little darker at rest, in the stack, than while it falls. The last colour of
    # the stack is for cells whose piece is not known.
    unknown_piece = "a3abbd"
    stack_colors = [_mix(color, empty, 0.22) for color in (*PIECE_COLORS, unknown_piece)]
    for color in (*stack_colors, *PIECE_COLORS):
        lit_edge = _mix(color, "ffffff", 0.35)
        shaded_edge = _mix(color, "000000", 0.3)
        cell_colors.append((color, lit_edge, shaded_edge))
    all_colors = chain.from_iterable(cell_colors)
    colors = np.array([list(bytes.fromhex(color)) for color in all_colors])
    page = colors[3 * PAGE]
    # Grey colours are half-way to the page's colour, but the page itself stays as it is.
    grey = (colors.mean(axis=1, keepdims=True) + page) / 2
    grey[: 3 * EMPTY] = page
    shares = np.linspace(0, 1, _SHADES)[:, np.newaxis]
    letter_shades = [page + shares * (colors[3 * kind] - page) for kind in (TEXT, FAINT)]
    stacked = np.vstack([colors, grey, *letter_shades])
    palette: npt.NDArray[np.uint8] = stacked.round().astype(np.uint8)
    return palette


PALETTE = _palette()
"""Colours, shape (colours, 3), uint8.

Each kind of cell has three: its inside, at index 3 * kind, the lit edge above and on the left,
and the edge in the shade. The same colours in grey follow, `GREY` behind them, and the shades
of letters.
"""

GREY = (FALLING + len(PIECES)) * 3


def board_picture(kinds: Cells, cell: int) -> Picture:
    """Return a picture of a board as an array of indices into the palette of colours.

    Every cell is a square with a lit edge above and on the left, and an edge in the shade below
    and on the right. Small squares have only a lit and a shaded corner, the smallest neither.

    Args:
        kinds: The kind of each cell, such as empty or part of an S piece, from `board_kinds`:
            shape (rows, width), row 0 at the bottom.
        cell: The side of a square in pixels.

    Returns:
        The picture, shape (rows * cell, width * cell), its top row first.
    """
    # The palette has three colours for each kind, at 3 * kind: inside, lit edge, shaded edge.
    lit = 1
    shaded = 2
    square = np.zeros((cell, cell), dtype=np.uint8)
    if 1 < cell < _SMALL:
        square[0, 0] = lit
        square[-1, -1] = shaded
    elif cell >= _SMALL:
        edge = max(1, cell // 10)
        square[:, -edge:] = shaded
        square[-edge:] = shaded
        square[:-edge, :edge] = lit
        square[:edge, :-edge] = lit
    top_row_first = kinds[::-1]
    kind_of_pixel = top_row_first.repeat(cell, axis=0).repeat(cell, axis=1)
    square_of_pixel = np.tile(square, kinds.shape)
    return 3 * kind_of_pixel + square_of_pixel


def framed_board(kinds: Cells, cell: int) -> Picture:
    """Return a `board_picture` with a frame below the board and on both of its sides.

    The rows above the board, of which there are `HEADROOM`, have no frame.
    """
    board = board_picture(kinds, cell)
    edge = max(2, cell // 4)
    picture = np.full((len(board) + edge, board.shape[1] + 2 * edge), 3 * FRAME, dtype=np.uint8)
    picture[: HEADROOM * cell] = 3 * PAGE
    picture[: len(board), edge:-edge] = board
    return picture


def piece_picture(piece: int | None, cell: int) -> Picture:
    """Return a picture of a piece in the middle of a square of 4 x 4 cells.

    The square is empty for None and for a number that is no piece.
    """
    kinds = np.full((4, 4), PAGE, dtype=np.uint8)
    if piece is not None and piece < len(PIECES):
        shape = PIECES[piece][0]
        put(kinds, shape, (4 - shape.width) // 2, (4 - shape.height) // 2, FALLING + piece)
    return board_picture(kinds, cell)


@lru_cache(256)
def text_picture(text: str, size: int, kind: int = TEXT) -> Picture:
    """Return a picture of a line of text in letters of ``size`` pixels.

    ``kind``, which is `TEXT` or `FAINT`, chooses the colour.
    """
    font = ImageFont.load_default(size)
    image = Image.new("L", (round(font.getlength(text)) + 1, size + size // 2))
    ImageDraw.Draw(image).text((0, 0), text, 255, font)
    # The shades of both kinds are behind the colours of cells, which the palette has twice.
    first_shade = 2 * GREY + (kind == FAINT) * _SHADES
    shades = np.asarray(image) // (256 // _SHADES + 1)  # From 0 to _SHADES - 1.
    return first_shade + shades.astype(np.uint8)


def fitted(picture: Picture, height: int, width: int) -> Picture:
    """Return a picture that is cut, or filled up with background, to a height and a width."""
    page = np.full((height, width), 3 * PAGE, dtype=np.uint8)
    part = picture[:height, :width]
    page[: part.shape[0], : part.shape[1]] = part
    return page


def column(pictures: Iterable[Picture], width: int) -> Picture:
    """Return one picture of pictures below each other, all fitted to one width."""
    return np.vstack([fitted(picture, len(picture), width) for picture in pictures])


def on_page(pictures: Iterable[Picture], gap: int) -> Picture:
    """Return one picture of pictures beside each other, with gaps between and around them.

    Its width and height are even, because videos need that.
    """
    pictures = list(pictures)
    height = max(map(len, pictures))
    page = np.hstack([fitted(picture, height, picture.shape[1] + gap) for picture in pictures])
    width = page.shape[1]
    rows = (gap, gap + height % 2)  # Above and below.
    columns = (gap, (width + gap) % 2)  # On the left and, beside the last gap, on the right.
    return np.pad(page, (rows, columns), constant_values=3 * PAGE)


def frame(scene: Scene, title: str = "", cell: int = 12) -> Picture:
    """Return the picture of one placement of a game: the board, and a panel on its right.

    The panel has the title, the size of the board, the next piece and the counts. All pictures
    of games with the same rules and title have the same size, of even width and height, so that
    they can be the frames of a video. ``cell`` is the side of a cell in pixels, at least 6.
    """
    text_size = cell + 2  # The height of letters in pixels.
    panel = []  # Pictures, from the top.
    title_lines = textwrap.wrap(printable(title), _PANEL_CHARACTERS) or [""]
    for line in title_lines:
        panel.append(text_picture(line, text_size))
    for label in (f"{scene.rules.board} {scene.rules.pieces}", "", "NEXT"):
        panel.append(text_picture(label, text_size, FAINT))
    panel.append(piece_picture(scene.next_piece, cell))
    counts = {"LINES": scene.lines, "PIECES": scene.pieces, "GAMES OVER": scene.games}
    for label, count in counts.items():
        panel.append(text_picture(label, text_size, FAINT))
        panel.append(text_picture(f"{count:,}", text_size))
    board = framed_board(scene_kinds(scene), cell)
    panel_width = 10 * text_size  # This is enough for `_PANEL_CHARACTERS`.
    return on_page([board, column(panel, panel_width)], cell)


def check_gif(speed: float) -> None:
    """Raise ValueError if a speed, in pictures per second, is too high for viewers of a GIF."""
    if speed > _FASTEST_GIF:
        raise ValueError(
            f"expected a speed of at most {_FASTEST_GIF:g} for a GIF, got {speed:g}"
        )


def has_mp4() -> bool:
    """Return whether imageio-ffmpeg is installed, which an MP4 needs."""
    return find_spec("imageio_ffmpeg") is not None


def write_gif(path: Path, pictures: Iterable[Picture], speed: float) -> None:
    """Write a looping GIF, atomically; ``speed`` is in pictures per second, at most 50."""

    def images() -> Iterator[Image.Image]:
        last: Picture | int = _CLEAR  # No pixel of the first picture has this colour.
        for picture in pictures:
            # A pixel that has not changed is transparent, which makes the file small. Pillow
            # can do that, too, but takes ten times as long.
            image = Image.fromarray(np.where(picture == last, np.uint8(_CLEAR), picture))
            image.putpalette(PALETTE.tobytes().ljust(3 * (_CLEAR + 1)))
            last = picture
            yield image

    save_gif(path, images(), speed, transparency=_CLEAR, optimize=False)


def save_gif(path: Path, images: Iterator[Image.Image], speed: float, **options: int) -> None:
    """Write Pillow's images as a looping GIF, atomically; ``speed`` is in images per second."""
    file = io.BytesIO()
    first = next(images)
    duration = round(1000 / speed)
    first.save(
        file, "GIF", save_all=True, append_images=images, duration=duration, loop=0, **options
    )
    write_bytes(path, file.getvalue())


def write_mp4(path: Path, pictures: Iterable[Picture], speed: float) -> None:
    """Write pictures as a video in H.264, atomically.

    Args:
        path: The file to write.
        pictures: Arrays of indices into `PALETTE`, all of the same size, of even width and
            height.
        speed: Pictures per second.
    """
    from imageio_ffmpeg import write_frames  # An optional dependency.

    remaining_pictures = iter(pictures)
    first_picture = next(remaining_pictures)
    height, width = first_picture.shape
    # In ffmpeg's format pal8 every frame is followed by a palette: 256 colours of four bytes,
    # which are blue, green, red and the opacity 255.
    blue_green_red = PALETTE[:, ::-1]
    missing_colors = 256 - len(PALETTE)
    padding = ((0, missing_colors), (0, 1))
    palette = np.pad(blue_green_red, padding, constant_values=255).tobytes()
    # ffmpeg writes a temporary file, so that the file at the path is never incomplete.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "video.mp4"
        frames = write_frames(
            str(file),
            (width, height),
            "pal8",
            fps=speed,
            codec="libx264",
            quality=6,
            output_params=["-preset", "ultrafast"],
            # Frames are scaled to multiples of this number of pixels. H.264 needs no more than
            # even sizes.
            macro_block_size=2,
        )
        # `closing` ends the writer's process before the folder is removed, after Ctrl-C, too.
        with closing(frames) as writer:
            writer.send(None)  # This starts the generator.
            for picture in chain([first_picture], remaining_pictures):
                writer.send(picture.tobytes() + palette)
        write_bytes(path, file.read_bytes())
