"""Replays as GIF and MP4."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from kernels.support.files import write_bytes
from tetris.view.game_view import Scene
from tetris.view.images import PALETTE, Picture, frame

GIF_CELL, MP4_CELL = 12, 24
"""Size of a cell of the board, in pixels."""

_FASTEST_GIF = 50.0

REMEDY = 'pip install -e ".[watch]"'


def check_gif(speed: float) -> None:
    """Raise ValueError where Pillow is not installed, or a speed is beyond what viewers show."""
    if speed > _FASTEST_GIF:
        raise ValueError(f"expected a speed of at most {_FASTEST_GIF:g} for a GIF, got {speed:g}")
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise ValueError(f"a GIF needs Pillow: {REMEDY}") from error


def check_mp4() -> None:
    """Raise ValueError where imageio-ffmpeg is not installed."""
    try:
        import imageio_ffmpeg  # noqa: F401
    except ImportError as error:
        raise ValueError(f"an MP4 needs imageio-ffmpeg: {REMEDY}") from error


def write_gif(path: Path, scenes: Iterable[Scene], title: str, speed: float) -> None:
    """Write a looping GIF, a picture a piece, atomically; ``speed`` is in pieces per second, at most 50."""
    from PIL import Image

    def images() -> Iterator[Image.Image]:
        for picture in _pictures(scenes, title, GIF_CELL):
            image = Image.fromarray(picture)
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

    pictures = _pictures(scenes, title, MP4_CELL)
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


def _pictures(scenes: Iterable[Scene], title: str, cell: int) -> Iterator[Picture]:
    return (frame(scene, title, cell) for scene in scenes)
