"""Pictures of a game, for a terminal, an environment, a GIF or an MP4.

A picture is an array of indices into `PALETTE`: ``PALETTE[picture]`` is the picture in red,
green and blue. A GIF has the same palette. A terminal does not draw the background of the page.
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
"""The colour of each piece, in the order of their numbers."""

_FASTEST_GIF = 50.0  # Pictures per second.
_TRANSPARENT = 255  # The transparent colour of a GIF: the pixel of the last picture stays.

_PANEL_CHARACTERS = 18
# In cells with fewer pixels on a side, complete edges would leave little of the inside.
_SMALL = 6
_SHADES = (
    6  # The colours of a letter's edge, from the colour of the page to that of the letter.
)


def _mix(color: str, other: str, share: float) -> str:
    """Return a mixture of two colours; ``share`` is the share of the other colour."""
    pairs = zip(bytes.fromhex(color), bytes.fromhex(other), strict=True)
    return bytes(round(a + (b - a) * share) for a, b in pairs).hex()


def _cell_colors() -> list[tuple[str, str, str]]:
    """Return three colours for each kind of cell: its inside, its lit and its shaded edge.

    A colour is a text of six hexadecimal digits. The kinds are in the order of their numbers:
    first the kinds without a piece, such as an empty cell, then the pieces at rest, and finally
    the falling pieces.
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
    # A piece is a little darker in the stack than while it falls. The last colour of the stack
    # is for cells whose piece is not known.
    unknown_piece = "a3abbd"
    stack_colors = [_mix(color, empty, 0.22) for color in (*PIECE_COLORS, unknown_piece)]
    for color in (*stack_colors, *PIECE_COLORS):
        lit_edge = _mix(color, "ffffff", 0.35)
        shaded_edge = _mix(color, "000000", 0.3)
        cell_colors.append((color, lit_edge, shaded_edge))
    return cell_colors


def _palette() -> npt.NDArray[np.uint8]:
    """Return the colours of all pictures: red, green and blue, shape (colours, 3), uint8.

    The colours are, in this order:

    1. Three colours for each kind of cell: its inside, its lit edge, and its shaded edge.
    2. The same colours in grey, for boards on which the game is over.
    3. The shades of letters, from the page's colour to that of the letter.
    """
    all_colors = chain.from_iterable(_cell_colors())
    colors = np.array([list(bytes.fromhex(color)) for color in all_colors])
    # The three colours of a kind begin at index 3 * kind.
    page = colors[3 * PAGE]
    # To make a colour grey, take the mean of its red, green and blue, and go half-way to the
    # colour of the page. The page itself stays as it is. Its colours come before EMPTY's.
    grey = (colors.mean(axis=1, keepdims=True) + page) / 2
    grey[: 3 * EMPTY] = page
    # From the colour of the page, with the share 0, to that of the letter, with the share 1.
    shares = np.linspace(0, 1, _SHADES)[:, np.newaxis]
    letter_shades = [page + shares * (colors[3 * kind] - page) for kind in (TEXT, FAINT)]
    stacked = np.vstack([colors, grey, *letter_shades])
    palette: npt.NDArray[np.uint8] = stacked.round().astype(np.uint8)
    return palette


PALETTE = _palette()
"""The colours of pictures, shape (colours, 3), uint8.

Each kind of cell has three colours, from index 3 * kind on: its inside, the lit edge above and
on the left, and the shaded edge below and on the right. The same colours in grey follow, each
at an index that is greater by `GREY`. The shades of letters come last.
"""

GREY = (FALLING + len(PIECES)) * 3


def board_picture(kinds: Cells, cell: int) -> Picture:
    """Return a picture of a board as an array of indices into the palette of colours.

    Every cell is a square with a lit edge above and on the left, and a shaded edge below and on
    the right. A small square has only a lit and a shaded corner. A square of one pixel has
    neither.

    Args:
        kinds: The kind of each cell, such as empty or part of an S piece, from `board_kinds`:
            shape (rows, width), row 0 at the bottom.
        cell: The side of a square in pixels.

    Returns:
        The picture, shape (rows * cell, width * cell), its top row first.
    """
    # The palette has three colours for each kind: its inside at index 3 * kind, its lit edge at
    # 3 * kind + 1, and its shaded edge at 3 * kind + 2.
    lit = 1
    shaded = 2
    square = np.zeros((cell, cell), dtype=np.uint8)
    if 1 < cell < _SMALL:
        square[0, 0] = lit
        square[-1, -1] = shaded
    elif cell >= _SMALL:
        edge = max(1, cell // 10)  # The width of an edge in pixels.
        square[:, -edge:] = shaded
        square[-edge:] = shaded
        # The corners where a lit edge meets a shaded edge are shaded.
        square[:-edge, :edge] = lit
        square[:edge, :-edge] = lit
    top_row_first = kinds[::-1]
    kind_of_pixel = top_row_first.repeat(cell, axis=0).repeat(cell, axis=1)
    edge_of_pixel = np.tile(square, kinds.shape)  # 0, lit or shaded
    return 3 * kind_of_pixel + edge_of_pixel


def framed_board(kinds: Cells, cell: int) -> Picture:
    """Return a `board_picture` with a frame below the board and on both of its sides.

    The `HEADROOM` rows above the board have no frame.
    """
    board = board_picture(kinds, cell)
    edge = max(2, cell // 4)
    picture = np.full((len(board) + edge, board.shape[1] + 2 * edge), 3 * FRAME, dtype=np.uint8)
    picture[: HEADROOM * cell] = 3 * PAGE
    picture[: len(board), edge:-edge] = board
    return picture


def piece_picture(piece: int | None, cell: int) -> Picture:
    """Return a picture of a piece in the middle of a square of 4 x 4 cells.

    If ``piece`` is None, or not the number of a piece, the square is empty.
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
    # In the palette the shades come after the colours of cells and the same colours in grey.
    # The shades of TEXT come first, then the shades of FAINT.
    first_shade = 2 * GREY + (kind == FAINT) * _SHADES
    shades = np.asarray(image) // (256 // _SHADES + 1)  # From 0 to _SHADES - 1.
    return first_shade + shades.astype(np.uint8)


def fitted(picture: Picture, height: int, width: int) -> Picture:
    """Return a picture that is cropped, or padded with background, to a height and a width."""
    page = np.full((height, width), 3 * PAGE, dtype=np.uint8)
    part = picture[:height, :width]
    page[: part.shape[0], : part.shape[1]] = part
    return page


def column(pictures: Iterable[Picture], width: int) -> Picture:
    """Return a picture that shows pictures one below another, all fitted to one width."""
    return np.vstack([fitted(picture, len(picture), width) for picture in pictures])


def on_page(pictures: Iterable[Picture], gap: int) -> Picture:
    """Return a picture that shows pictures side by side, with gaps between and around them.

    Its width and height are even numbers, because videos require that.
    """
    pictures = list(pictures)
    height = max(map(len, pictures))
    page = np.hstack([fitted(picture, height, picture.shape[1] + gap) for picture in pictures])
    width = page.shape[1]
    rows_around = (gap, gap + height % 2)  # Above and below.
    # On the left and, in addition to the last gap, on the right.
    columns_around = (gap, (width + gap) % 2)
    return np.pad(page, (rows_around, columns_around), constant_values=3 * PAGE)


def frame(scene: Scene, title: str = "", cell: int = 12) -> Picture:
    """Return the picture of one placement of a game: the board, and a panel on its right.

    The panel has the title, the size of the board, the next piece and the counts. The width and
    the height of the picture are even, and depend only on the rules, the title and ``cell``. So
    the pictures of a game can be the frames of a video.

    Args:
        scene: The placement, with the board before it and the counts.
        title: The title.
        cell: The side of a cell in pixels, at least 6.
    """
    text_size = cell + 2  # The height of letters in pixels.
    panel = []  # The pictures of the panel, from the top.
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
    panel_width = 10 * text_size  # A line of `_PANEL_CHARACTERS` characters fits.
    return on_page([board, column(panel, panel_width)], gap=cell)


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
        """Yield the frames of the GIF, whose unchanged pixels are transparent."""
        # A GIF has 256 colours of three bytes. The last colour, number _TRANSPARENT, is
        # transparent. The colours between our palette and this one are not used.
        num_colors = _TRANSPARENT + 1
        colors = PALETTE.tobytes().ljust(3 * num_colors)
        last_picture: Picture | None = None
        for picture in pictures:
            changes = picture
            if last_picture is not None:
                # Transparent pixels make the file small. Pillow could find them itself, but
                # takes ten times as long.
                is_unchanged = picture == last_picture
                changes = np.where(is_unchanged, np.uint8(_TRANSPARENT), picture)
            image = Image.fromarray(changes)
            image.putpalette(colors)
            last_picture = picture
            yield image

    save_gif(path, images(), speed, transparency=_TRANSPARENT, optimize=False)


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
    palette = _video_palette()
    # ffmpeg writes a temporary file. At the end `write_bytes` writes its content to the path
    # atomically, so that the file there is never incomplete.
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
            # imageio-ffmpeg scales frames to multiples of this number of pixels. H.264 requires
            # only even sizes.
            macro_block_size=2,
        )
        # `frames` is a generator whose `send` takes a frame. `closing` waits until its ffmpeg
        # process has ended, even after Ctrl-C. Only then is the folder removed.
        with closing(frames) as writer:
            writer.send(None)  # This starts the generator.
            for picture in chain([first_picture], remaining_pictures):
                # In ffmpeg's format pal8 a frame consists of pixels and a palette. A pixel is
                # one byte, the index of its colour.
                writer.send(picture.tobytes() + palette)
        write_bytes(path, file.read_bytes())


def _video_palette() -> bytes:
    """Return `PALETTE` as ffmpeg takes it: 256 colours of four bytes.

    The bytes are blue, green, red and opacity, which is 255.
    """
    blue_green_red = PALETTE[:, ::-1]
    missing_colors = 256 - len(PALETTE)
    # A row of the palette is a colour. Add the missing rows, and a column for the opacity.
    padding = ((0, missing_colors), (0, 1))
    return np.pad(blue_green_red, padding, constant_values=255).tobytes()
