"""The folder of built libraries.

This module says where it is, who may build in it, and how a finished file appears in it. For a
library with the stem ``NAME-DIGEST-DIGEST`` it holds ``STEM.so`` and ``STEM.json`` (the
manifest), ``STEM.lock`` (empty, locked with flock while somebody builds) and ``STEM.XXXX.work``
(a build that goes on or was killed).
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
    """Return the folders in which a built library may lie.

    They need neither exist nor be writable. Where ``$CEM_TETRIS_CACHE`` is set it is the only
    one. Otherwise the first is in ``$XDG_CACHE_HOME`` or ``~/.cache``, and the second is this
    user's in the temporary folder.
    """
    chosen = os.environ.get(VARIABLE, "").strip()
    if chosen:
        return [Path(os.path.abspath(os.path.expanduser(chosen)))]
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: a relative path is invalid and ignored
        base = os.path.expanduser("~/.cache")
    usual = [Path(base) / "cem-tetris"]
    # There may be no folder in which temporary files can be written.
    with contextlib.suppress(FileNotFoundError):
        usual.append(Path(tempfile.gettempdir()) / f"cem-tetris-{system.user_id() or 0}")
    return usual


def cache_dir() -> Path:
    """Return the folder to build in.

    It is the first of `folders` that can be written, or the last where none can.
    """
    *preferred, last = folders()
    return next(filter(_can_write, preferred), last)


def _can_write(folder: Path) -> bool:
    """Return whether files can be made in a folder; a missing folder is made first."""
    if folder.is_absolute():  # "~" stays in the path where there is no home
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    # Unlike Path.is_dir, os.path.isdir is False where a folder above may not be searched.
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def locate(file: str) -> Path | None:
    """Return the library of a file name in one of the folders that may be loaded, or None."""
    return next((folder / file for folder in folders() if not objection(folder / file)), None)


def manifests(pattern: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the libraries whose names match a pattern, and their manifests."""
    for folder in folders():
        # The module, unlike Path.glob, finds nothing where a folder cannot be read.
        for name in sorted(glob.glob(f"{pattern}.so", root_dir=folder)):
            library = folder / name
            with contextlib.suppress(OSError, ValueError):
                text = library.with_suffix(".json").read_text(encoding="utf-8")
                yield library, json.loads(text)


def objection(library: Path) -> str:
    """Return why a library must not be loaded, or an empty text where it may be.

    The reason is the end of a sentence. A library that others can write would run what they
    wrote.
    """
    try:
        for path in (library.parent, library):
            if reason := _explain_distrust(path):
                return f"is not loaded, for {path} {reason}"
    except OSError:
        return "is missing"
    return ""


def _explain_distrust(path: Path) -> str:
    """Return why code in a file or a folder must not run, or an empty text where it may.

    The reason is the end of a sentence. Root's files are trusted: a container's libraries are
    built by root and loaded by another user. Where files have no owners, the folders are in the
    user's own.
    """
    own_id = system.user_id()
    if own_id is None:
        return ""
    status = path.stat()
    # lstat names the owner of a link, who may be anybody.
    owners = {status.st_uid, path.lstat().st_uid}
    if not owners <= {0, own_id}:
        return "belongs to another user"
    return "can be written by others" if status.st_mode & _OTHERS_WRITE else ""


@contextlib.contextmanager
def lock(library: Path) -> Iterator[None]:
    """Hold an exclusive lock on the build of one library, and wait if another process has it.

    Linux releases a flock when its process ends, so a killed build blocks nobody. On a file
    system without locks every process builds for itself, and the last library stays; the
    package filelock would wait there for ever.

    Raises:
        BuildError: the cache folder cannot be written, or others can write to it.
    """
    folder = library.parent
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        reason = _explain_distrust(folder)
        if reason:
            raise BuildError(
                f"expected a cache folder that you alone can write, but {folder} {reason}",
                f"chown it or chmod go-w it, or set {VARIABLE} to a folder of yours",
            )
        lock_file = library.with_suffix(".lock")
        handle = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise unusable(folder, error) from error
    try:
        try:
            system.lock(handle)
        except BlockingIOError:
            say(f"waiting for another process that builds {library.stem}")
            system.lock(handle, waits=True)
        yield
    finally:
        system.release(handle)


def say(line: str) -> None:
    """Print a line of progress on stderr."""
    print(f"kernels: {line}", file=sys.stderr, flush=True)


def unusable(folder: Path, error: OSError) -> BuildError:
    """Return the error of a build whose folder cannot be used, or has no room."""
    return BuildError(
        f"expected a cache folder that can be written, got {folder} ({error.strerror})",
        f"set {VARIABLE} to a folder of yours, on a disk with room",
    )


@contextlib.contextmanager
def work_dir(library: Path) -> Iterator[Path]:
    """Make a temporary folder beside a library to build it in, and remove it afterwards.

    The folder has a new name every time, because the compilers of a killed build may still be
    writing to theirs. Folders that killed builds left more than a day ago are removed, too.

    Raises:
        BuildError: the disk is full or cannot be written, now or inside the block.
    """
    for folder in library.parent.glob(f"*{_WORK_SUFFIX}"):
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
        raise unusable(library.parent, error) from error


def install(built: Path, manifest: dict[str, Any], library: Path) -> None:
    """Move a finished library and its manifest from the work folder into place.

    Each file appears whole or not at all. The library comes last: whoever sees it sees its
    manifest.
    """
    draft = built.with_suffix(".json")
    draft.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    for path, target in ((draft, library.with_suffix(".json")), (built, library)):
        path.chmod(path.stat().st_mode & ~_OTHERS_WRITE)  # whatever the umask
        with path.open("rb") as file:
            # A library torn by a power cut would end the process that loads it (SIGBUS).
            os.fsync(file.fileno())
        os.replace(path, target)
