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
    """Return the colours of pictures, shape (colours, 3); `PALETTE` describes their order."""
    empty = "1f232b"
    kinds = [  # In the order of the kinds: inside, lit edge, edge in the shade.
        ("16181d",) * 3,
        (empty, empty, "282d37"),
        ("4a5160",) * 3,
        ("e8eaf0",) * 3,
        ("8b93a5",) * 3,
        ("dde3f0", "ffffff", "b4bccd"),
    ]
    stack_colors = [_mix(color, empty, 0.22) for color in (*PIECE_COLORS, "a3abbd")]
    for color in (*stack_colors, *PIECE_COLORS):
        kinds.append((color, _mix(color, "ffffff", 0.35), _mix(color, "000000", 0.3)))
    colors = np.array([list(bytes.fromhex(color)) for color in chain.from_iterable(kinds)])
    page = colors[3 * PAGE]
    grey = (colors.mean(axis=1, keepdims=True) + page) / 2
    grey[: 3 * EMPTY] = page  # The page around a grey board stays as it is.
    # The edge of a letter goes over from the page's colour to the letter's.
    shares = np.linspace(0, 1, _SHADES)[:, np.newaxis]
    letters = [page + shares * (colors[3 * kind] - page) for kind in (TEXT, FAINT)]
    palette: npt.NDArray[np.uint8] = (
        np.vstack([colors, grey, *letters]).round().astype(np.uint8)
    )
    return palette


PALETTE = _palette()
"""Colours, shape (colours, 3), uint8.

Each kind of cell has three: its inside, at index 3 * kind, the lit edge above and on the left,
and the edge in the shade. The same colours in grey follow, `GREY` behind them, and the shades
of letters.
"""

GREY = (FALLING + len(PIECES)) * 3


def board_picture(kinds: Cells, cell: int) -> Picture:
    """Return a picture of a board: an array of indices into `PALETTE`.

    Args:
        kinds: The kind of each cell, from `board_kinds`, shape (rows, width).
        cell: Pixels of a cell's side.

    Returns:
        The picture, shape (rows * cell, width * cell), its top row first.
    """
    # The pattern of a cell: 0 for its inside, 1 for the lit edge, 2 for the edge in the shade.
    pattern = np.zeros((cell, cell), dtype=np.uint8)
    if 1 < cell < _SMALL:
        pattern[0, 0] = 1
        pattern[-1, -1] = 2
    elif cell > 1:
        width = max(1, cell // 10)
        pattern[:, -width:] = 2
        pattern[-width:] = 2
        pattern[:-width, :width] = 1
        pattern[:width, :-width] = 1
    # The palette has three colours for each kind, in the order of the pattern's numbers.
    kind_of_pixel = kinds[::-1].repeat(cell, axis=0).repeat(cell, axis=1)
    pattern_of_pixel = np.tile(pattern, kinds.shape)
    return 3 * kind_of_pixel + pattern_of_pixel


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
    """Return the picture of a scene: the framed board, the title, the next piece, the counts.

    All scenes under the same rules and title have pictures of the same size, of even width and
    height. ``cell`` is the side of a cell in pixels, at least 6.
    """
    size = cell + 2  # The height of letters.
    panel = []  # The pictures on the right of the board, from the top.
    for line in textwrap.wrap(printable(title), _PANEL_CHARACTERS) or [""]:
        panel.append(text_picture(line, size))
    for label in (f"{scene.rules.board} {scene.rules.pieces}", "", "NEXT"):
        panel.append(text_picture(label, size, FAINT))
    panel.append(piece_picture(scene.next_piece, cell))
    counts = {"LINES": scene.lines, "PIECES": scene.pieces, "GAMES OVER": scene.games}
    for label, count in counts.items():
        panel += [text_picture(label, size, FAINT), text_picture(f"{count:,}", size)]
    board = framed_board(scene_kinds(scene), cell)
    return on_page([board, column(panel, 10 * size)], cell)


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
    """Write a video in H.264, atomically; ``speed`` is in pictures per second.

    The pictures have the same size, of even width and height.
    """
    from imageio_ffmpeg import write_frames  # An optional dependency.

    rest = iter(pictures)
    first = next(rest)
    height, width = first.shape
    # ffmpeg's format pal8 has a palette behind each picture: 256 colours of blue, green, red
    # and the opacity 255.
    padding = ((0, 256 - len(PALETTE)), (0, 1))
    colors = np.pad(PALETTE[:, ::-1], padding, constant_values=255).tobytes()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "video.mp4"
        # Any even size is fine for H.264; by default pictures would be scaled to multiples of
        # 16.
        options = {"codec": "libx264", "quality": 6, "output_params": ["-preset", "ultrafast"]}
        frames = write_frames(
            str(file), (width, height), "pal8", fps=speed, macro_block_size=2, **options
        )
        # The writer's process must end before the folder is removed, after Ctrl-C, too.
        with closing(frames) as writer:
            writer.send(None)  # Starts the generator.
            for picture in chain([first], rest):
                writer.send(picture.tobytes() + colors)
        write_bytes(path, file.read_bytes())
