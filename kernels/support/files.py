"""Writing a file whole or not at all, for every package of this project."""

import contextlib
import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from kernels.support.system import copy_mode, sync_folder

_LARGEST_FILE = 1 << 28  # bytes
_DESCRIPTORS = ("/dev/fd/", "/dev/std", "/proc/")


def check_own(path: str | os.PathLike[str]) -> None:
    """Raise OSError where a path leads elsewhere: it may be a file, a folder or missing.

    What lies in the folder of a run is checked before it is opened: a stranger may have put a
    link to another file there, or a pipe, which would be waited for. A path that the user names
    needs no check.

    Raises:
        OSError: If it is a link, a pipe or a device.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = "a link" if stat.S_ISLNK(mode) else "a pipe, socket or device"
        raise OSError(errno.EINVAL, f"expected a file of its own, got {kind}", str(path))


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file, which a device without an end is not.

    Raises:
        OSError: If it cannot be read, or is larger than 256 MiB.
    """
    with named_errors(path), Path(path).open("rb") as file:
        content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise OSError(errno.EFBIG, "expected a file of at most 256 MiB")
    return content


@contextlib.contextmanager
def named_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise OSErrors with the name of a file: those of reading and writing have none."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Replace the content of a file by a text, written as UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Replace the content of a file, whole or not at all.

    After a kill or a power cut the file is the old one or the new one. A symbolic link stays,
    and the file that it names is replaced; its mode stays. What is no regular file (a device, a
    pipe) and what is open already, as ``/dev/stdout``, is written to at its end.

    Raises:
        OSError: If it cannot be written, with the path that was given; a file that was there is
            untouched.
    """
    with named_errors(path):
        if _is_special(path):
            with Path(path).open("ab") as file:
                file.write(content)
        else:
            _replace(Path(os.path.realpath(path)), content)


def check_writable(path: Path) -> None:
    """Raise OSError where `write_bytes` could not write a file, before any work is done."""
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


def open_closed_streams() -> None:
    """Open the null device for each standard stream that whoever started the process closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - stays open
            setattr(sys, name, stream)


def discard_stdout() -> None:
    """Discard what stdout does not take any more.

    The interpreter would complain about it at exit.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_special(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a device, a pipe, a folder or something that is open already."""
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
        # The rename survives a power cut only once the folder itself is on the disk.
        sync_folder(target.parent)
    finally:
        # It only exists after an error or Ctrl-C.
        temporary.unlink(missing_ok=True)
