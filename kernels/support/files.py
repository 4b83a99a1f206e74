"""Writes files atomically, and reads and checks them, for every package of this project."""

import contextlib
import errno
import io
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from kernels.support.system import copy_mode, sync_folder

StrPath = str | os.PathLike[str]
"""A path as a text or as an object, such as a `Path`."""

_LARGEST_FILE = 1 << 28  # bytes
_DESCRIPTORS = ("/dev/fd/", "/dev/std", "/proc/")


def check_own(path: StrPath) -> None:
    """Raise OSError if a path is anything but a file, a folder or missing.

    The files in the folder of a run are checked before they are opened, because another user
    may have put a link or a pipe there. A pipe would block the reader. A path that the user
    names needs no check.

    Raises:
        OSError: the path is a link, a pipe or a device.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = "a link" if stat.S_ISLNK(mode) else "a pipe, socket or device"
        raise OSError(errno.EINVAL, f"expected a file of its own, got {kind}", str(path))


def read_bytes(path: StrPath) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: it cannot be read, or is larger than 256 MiB, as an endless device is.
    """
    with named_errors(path), Path(path).open("rb") as file:
        content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise OSError(errno.EFBIG, "expected a file of at most 256 MiB")
    return content


@contextlib.contextmanager
def named_errors(path: StrPath) -> Iterator[None]:
    """Add the name of a file to OSErrors, which have none if reading or writing fails."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_text(path: StrPath, text: str) -> None:
    """Replace the content of a file by a text, encoded as UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: StrPath, content: bytes) -> None:
    """Replace the content of a file atomically.

    After a kill or a power cut the file has its old content or its new one. The file keeps its
    permissions. If the path is a symbolic link, the link remains, and its target is replaced.
    For a device, a pipe, or a file that is open already, such as ``/dev/stdout``, the content
    is appended instead.

    Raises:
        OSError: the file cannot be written; an existing file is unchanged. The error names the
            path.
    """
    with named_errors(path):
        if _is_special(path):
            with Path(path).open("ab") as file:
                file.write(content)
        else:
            _replace(Path(os.path.realpath(path)), content)


def check_writable(path: Path) -> None:
    """Raise OSError if `write_bytes` could not write a file, before any work is done."""
    if path.is_dir():
        raise IsADirectoryError(None, "expected a file to write, got a folder", str(path))
    special = _is_special(path)
    target = path if special else Path(os.path.realpath(path)).parent
    if not special and not target.is_dir():
        raise FileNotFoundError(None, "expected a folder to write to, found none", str(target))
    if not os.access(target, os.W_OK):
        raise PermissionError(
            None, "expected a file or a folder to write to, it is read-only", str(target)
        )


def prepare_streams() -> None:
    r"""Make the standard streams of a command fit for any output.

    The null device replaces a stream that the parent process closed. Where an encoding lacks a
    character, such as that of a path, its escape sequence is printed: ``\xe9``.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - stays open
            setattr(sys, name, stream)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_stdout() -> None:
    """Discard the buffered output that stdout no longer accepts.

    Otherwise the interpreter would report an error at exit.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_special(path: StrPath) -> bool:
    """Return whether a path is a device, a pipe, a folder or an open file (/dev/stdout)."""
    if not os.path.exists(path):
        return False
    return not os.path.isfile(path) or os.path.abspath(path).startswith(_DESCRIPTORS)


def _replace(target: Path, content: bytes) -> None:
    """Replace a file atomically: write a temporary file beside it, then rename that.

    After a crash or a power cut the target has its old content or its new one. A target that
    exists keeps its permissions.
    """
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        # Mode "x" fails if a file or a link of this name exists.
        with temporary.open("xb") as file:
            if target.exists():
                copy_mode(target, file)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        # Only after the folder is written to the disk does the rename survive a power cut.
        sync_folder(target.parent)
    finally:
        # After an error or Ctrl-C the temporary file may still exist.
        temporary.unlink(missing_ok=True)
