"""The cache: the folder of the built libraries.

This module decides where the cache is, who may build in it, and how finished files get into it.
For a library with the stem ``NAME-DIGEST-DIGEST`` the cache holds

- ``STEM.so``: the library;
- ``STEM.json``: its manifest;
- ``STEM.lock``: an empty file, which a process locks with flock while it builds;
- ``STEM.XXXX.work``: the folder of a build that is running or was killed.
"""

import contextlib
import glob
import json
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernels.loader.toolchain import BuildError
from kernels.support import system

VARIABLE = "CEM_TETRIS_CACHE"
_WORK_SUFFIX = ".work"
_STALE_SECONDS = 86_400.0  # longer than any build
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def folders() -> list[Path]:
    """Return the folders that may contain built libraries.

    They may be missing or read-only. If ``$CEM_TETRIS_CACHE`` is set, it is the only folder.
    Otherwise the first folder is in ``$XDG_CACHE_HOME`` or ``~/.cache``, and the second one,
    for this user only, is in the folder for temporary files.
    """
    chosen = os.environ.get(VARIABLE, "").strip()
    if chosen:
        return [Path(os.path.abspath(os.path.expanduser(chosen)))]
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: a relative path is invalid and ignored
        base = os.path.expanduser("~/.cache")
    usual = [Path(base) / "cem-tetris"]
    # A machine may have no folder in which temporary files can be written.
    with contextlib.suppress(FileNotFoundError):
        usual.append(Path(tempfile.gettempdir()) / f"cem-tetris-{system.user_id() or 0}")
    return usual


def cache_dir() -> Path:
    """Return the folder to build in.

    It is the first of `folders` that is writable; if none is, it is the last.
    """
    *preferred, last = folders()
    return next(filter(_can_write, preferred), last)


def _can_write(folder: Path) -> bool:
    """Return whether a folder is writable; create the folder if it is missing."""
    if folder.is_absolute():  # "~" remains in the path if the user has no home
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    # os.path.isdir returns False if a parent folder may not be searched; Path.is_dir raises.
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def locate(file: str) -> Path | None:
    """Return the path of a library that may be loaded, from its file name, or None."""
    return next((folder / file for folder in folders() if not objection(folder / file)), None)


def manifests(pattern: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the libraries whose names match a pattern, and their manifests."""
    for folder in folders():
        # glob.glob yields nothing for a folder that cannot be read; Path.glob may raise.
        for name in sorted(glob.glob(f"{pattern}.so", root_dir=folder)):
            library = folder / name
            with contextlib.suppress(OSError, ValueError):
                text = library.with_suffix(".json").read_text(encoding="utf-8")
                manifest = json.loads(text)
                # A manifest of another shape is passed over, as one that cannot be read is.
                is_manifest = isinstance(manifest, dict) and "processor" in manifest
                if is_manifest and isinstance(manifest.get("architectures", []), list):
                    yield library, manifest


def objection(library: Path) -> str:
    """Return why a library must not be loaded, or an empty text if it may be.

    The reason is the end of a sentence. If other users can write to a library, they can run any
    code in the process that loads it.
    """
    try:
        for path in (library.parent, library):
            if reason := _explain_distrust(path):
                return f"is not loaded, for {path} {reason}"
    except OSError:
        return "is missing"
    return ""


def _explain_distrust(path: Path) -> str:
    """Return why code in a file or a folder must not run, or an empty text if it may.

    The reason is the end of a sentence. Files of root are trusted, because in a container root
    builds the libraries that another user loads. On a system where files have no owners, the
    folders lie within the user's own.
    """
    own_id = system.user_id()
    if own_id is None:
        return ""
    status = path.stat()
    # stat follows a link to its target; lstat returns the owner of the link itself.
    owners = {status.st_uid, path.lstat().st_uid}
    if not owners <= {0, own_id}:
        return "belongs to another user"
    return "can be written by others" if status.st_mode & _OTHERS_WRITE else ""


@contextlib.contextmanager
def lock(library: Path) -> Iterator[None]:
    """Hold an exclusive lock on the build of a library inside the ``with`` block.

    If another process holds the lock, print a line and wait. Linux releases a lock when its
    process ends, so a killed build blocks nobody.

    On a file system without locks, several processes may build the same library at the same
    time. The last of them overwrites the library of the others. (The package filelock is not
    used, because it would wait forever on such a file system.)

    Raises:
        BuildError: this user cannot write to the cache folder, or other users can.
    """
    folder = library.parent
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        # Other users who can write to the folder could replace libraries with their own code.
        reason = _explain_distrust(folder)
        if reason:
            raise BuildError(
                f"expected a cache folder that you alone can write, but {folder} {reason}",
                f"chown it or chmod go-w it, or set {VARIABLE} to a folder of yours",
            )
        lock_file = library.with_suffix(".lock")
        handle = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise unwritable_error(folder, error) from error
    try:
        try:
            # This first attempt does not wait.
            system.lock(handle)
        except BlockingIOError:
            # Another process holds the lock. Print a line before waiting.
            say(f"waiting for another process that builds {library.stem}")
            system.lock(handle, waits=True)
        yield
    finally:
        system.release(handle)


def say(line: str) -> None:
    """Print a line of progress on stderr, unless nobody can read it any more."""
    with contextlib.suppress(OSError):
        print(f"kernels: {line}", file=sys.stderr, flush=True)


def unwritable_error(folder: Path, error: OSError) -> BuildError:
    """Return the error to raise if the cache folder is not writable or its disk is full."""
    return BuildError(
        f"expected a cache folder that can be written, got {folder} ({error.strerror})",
        f"set {VARIABLE} to a folder of yours, on a disk with room",
    )


@contextlib.contextmanager
def work_dir(library: Path) -> Iterator[Path]:
    """Create a temporary folder beside a library to build it in, and remove it afterwards.

    Every build has a new folder, because the compilers of a killed build may still be writing
    to the old one. Folders that were left by killed builds are removed after a day.

    Raises:
        BuildError: the disk is full or not writable, on entry or inside the ``with`` block.
    """
    for folder in library.parent.glob(f"*{_WORK_SUFFIX}"):
        # Another process may remove the same folder at the same time.
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
    try:
        work = Path(
            tempfile.mkdtemp(prefix=f"{library.stem}.", suffix=_WORK_SUFFIX, dir=library.parent)
        )
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise unwritable_error(library.parent, error) from error


def install(built: Path, manifest: dict[str, Any], library: Path) -> None:
    """Move a finished library and its manifest from the work folder into the cache.

    Each file appears complete or not at all. The manifest is moved first, so that a process
    that sees the library also sees its manifest.
    """
    draft = built.with_suffix(".json")
    draft.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    for path, target in ((draft, library.with_suffix(".json")), (built, library)):
        path.chmod(path.stat().st_mode & ~_OTHERS_WRITE)  # whatever the umask
        with path.open("rb") as file:
            # If a power cut truncated a library, loading it would kill the process (SIGBUS).
            os.fsync(file.fileno())
        os.replace(path, target)
