"""Writing a file whole or not at all; and which file was meant where there is none of a name."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from kernels.names import did_you_mean


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Replace a file by a text, written as UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Replace a file: should machine or program stop in between, the file is the old one or the new.

    Args:
        path: Where to write; its folder exists.
        content: All that the file is to hold.

    Raises:
        OSError: If it cannot be written; a file that was there is untouched.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        _replace(target, temporary, content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error
    finally:
        with suppress(OSError):
            temporary.unlink()  # it is there after an error or Ctrl-C alone


def meant_path(path: str | os.PathLike[str]) -> str:
    """Return ``"; did you mean 'PATH'?"``, or nothing where the folder holds nothing of a name like it."""
    missing = Path(path)
    with suppress(OSError):
        return did_you_mean(str(missing), [str(entry) for entry in missing.parent.iterdir()])
    return ""


def _replace(target: Path, temporary: Path, content: bytes) -> None:
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # a rename is on the disk only once its folder is
    finally:
        os.close(folder)
