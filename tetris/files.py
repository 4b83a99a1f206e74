"""Writing a file whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Replace a file by a text: should the machine stop in between, the file is the old one or the new.

    Args:
        path: Where to write; its folder exists.
        text: Written as UTF-8.

    Raises:
        OSError: If it cannot be written; a file that was there is untouched.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        _replace(target, temporary, text)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise OSError(error.errno, error.strerror, str(target)) from error


def _replace(target: Path, temporary: Path, text: str) -> None:
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # a rename is on the disk only once its folder is
    finally:
        os.close(folder)
