"""The folder of built libraries: where it is, who may build in it, how a finished file appears in it.

For a library with the stem ``NAME-DIGEST`` it holds ``STEM.so`` and ``STEM.json`` (the manifest),
``STEM.lock`` (empty, locked with flock while somebody builds), ``STEM.XXXX.work`` (a build that goes on or
was killed) and ``STEM.log`` (what the compiler said, after a failure only).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
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
from kernels.support.files import flock

VARIABLE = "CEM_TETRIS_CACHE"
_WORK_SUFFIX = ".work"
_STALE_SECONDS = 86_400.0  # longer than any build
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_dir() -> Path:
    """Returns the cache folder, which need not exist yet.

    It is ``$CEM_TETRIS_CACHE``, else ``$XDG_CACHE_HOME/cem-tetris``, else ``~/.cache/cem-tetris``. Where the
    second or third cannot be written, it is a private folder under the system's temporary one, and a line on
    stderr says so once.

    Raises:
        BuildError: no folder at all can be written.
    """
    chosen = _chosen_dir()
    if chosen is not None:
        return chosen
    usual = _usual_dir()
    return usual if _can_write(usual) else _private_dir(usual)


def folders() -> list[Path]:
    """Returns the folders in which a built library may lie; they need not be writable.

    They are the one that a person chose, else all that ``cache_dir`` can choose: what was built ahead stays
    in use where its folder has become read-only. No folder is made.
    """
    chosen = _chosen_dir()
    if chosen is not None:
        return [chosen]
    candidates = [_usual_dir()]
    with contextlib.suppress(OSError):  # there is no temporary folder
        candidates.append(_private_path())
    return [folder for folder in candidates if folder.is_absolute() and folder.is_dir()]


def locate(file: str) -> Path | None:
    """Returns the library of a file name in one of the folders that may be loaded, or None."""
    return next((folder / file for folder in folders() if not objection(folder / file)), None)


def objection(library: Path) -> str:
    """Returns why a library must not be loaded, as the end of a sentence; empty where it may be.

    A torn one would end the process (SIGBUS), and one that others can write would run what they wrote.
    """
    try:
        for path in (library.parent, library):
            if reason := _distrust(path):
                return f"is not loaded, for {path} {reason}"
        manifest = json.loads(library.with_suffix(".json").read_text(encoding="utf-8"))
        whole = isinstance(manifest, dict) and manifest.get("sha256") == _digest(library)
    except (OSError, ValueError, RecursionError):
        whole = False
    return "" if whole else "is damaged"


def _distrust(path: Path) -> str:
    """Returns why code in a file or a folder must not run, as the end of a sentence; empty where it may.

    Root's is trusted: a container's libraries are built by root and loaded by another user.
    """
    status = path.stat()
    if not {status.st_uid, path.lstat().st_uid} <= {0, os.getuid()}:  # lstat: a link can be anybody's
        return "belongs to another user"
    return "can be written by others" if status.st_mode & _OTHERS_WRITE else ""


def _digest(library: Path) -> str:
    return hashlib.sha256(library.read_bytes()).hexdigest()


def _chosen_dir() -> Path | None:
    chosen = os.environ.get(VARIABLE, "").strip()
    return Path(os.path.abspath(os.path.expanduser(chosen))) if chosen else None


def _usual_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: a relative path is invalid and ignored
        base = os.path.expanduser("~/.cache")
    return Path(base) / "cem-tetris"


def _can_write(folder: Path) -> bool:
    """Tells whether files can be made in a folder, which may have to be made first."""
    nearest = folder
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    # Not absolute: "~" could not be expanded, for there is no home.
    return nearest.is_absolute() and nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def _private_path() -> Path:
    return Path(tempfile.gettempdir()) / f"cem-tetris-{os.getuid()}"


@functools.lru_cache(maxsize=4)
def _private_dir(refused: Path) -> Path:
    """Returns a folder under the temporary one, which it makes for this user alone."""
    try:
        folder = _private_path()
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unusable(refused, error) from error
    print(
        f"kernels: {refused} cannot be written, building in {folder} ({VARIABLE} chooses another)",
        file=sys.stderr,
    )
    return folder


@contextlib.contextmanager
def lock(library: Path) -> Iterator[None]:
    """Holds the right to build one library, waiting for whoever has it.

    The kernel drops a flock with the process that holds it, so a killed build blocks nobody. On a file system
    without locks nobody waits: each process builds in a folder of its own, and the last one's library stays.

    Raises:
        BuildError: the cache folder cannot be written, or others can write to it.
    """
    folder = library.parent
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if reason := _distrust(folder):
            raise BuildError(
                f"expected a cache folder that you alone can write, but {folder} {reason}",
                f"chown it or chmod go-w it, or set {VARIABLE} to a folder of yours",
            )
        handle = os.open(library.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        try:
            flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            line = f"kernels: waiting for another process that builds {library.stem}"
            print(line, file=sys.stderr, flush=True)
            flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        # Unlocked first: a process forked meanwhile has the file open too, and closing it would not free it.
        flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _unusable(folder: Path, error: OSError) -> BuildError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = (
        f"make room, or set {VARIABLE} to another folder" if full else f"set {VARIABLE} to a folder of yours"
    )
    return BuildError(f"expected a cache folder that can be written, got {folder} ({error.strerror})", remedy)


@contextlib.contextmanager
def work_dir(library: Path) -> Iterator[Path]:
    """Makes a fresh folder to build in, and removes it afterwards.

    Its name is never used twice: the compilers of a killed build may still run, and what they write must not
    meet the next build's files.

    Raises:
        BuildError: the disk is full, or another of its errors came up inside.
    """
    _sweep(library.parent)
    work = None
    try:
        work = Path(tempfile.mkdtemp(prefix=f"{library.stem}.", suffix=_WORK_SUFFIX, dir=library.parent))
        yield work
    except OSError as error:
        raise _unusable(library.parent, error) from error
    finally:
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Removes what builds left that were killed long ago."""
    for work in folder.glob(f"*{_WORK_SUFFIX}"):
        with contextlib.suppress(OSError):
            if time.time() - work.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(work, ignore_errors=True)


def install(built: Path, manifest: dict[str, Any], library: Path) -> None:
    """Moves a finished library and its manifest, with its digest, from the work folder into place.

    The library comes last. Whoever sees it therefore sees all of it, and its manifest.
    """
    draft = built.with_suffix(".json")
    draft.write_text(json.dumps({**manifest, "sha256": _digest(built)}, indent=2) + "\n", encoding="utf-8")
    for path, target in ((draft, library.with_suffix(".json")), (built, library)):
        path.chmod(path.stat().st_mode & ~_OTHERS_WRITE)  # whatever the umask
        _sync(path)
        os.replace(path, target)
    _sync(library.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def manifests(folder: Path, stems: str = "*") -> list[dict[str, Any]]:
    """Returns the manifests of the libraries in a cache folder, each with the library's path, by name.

    Args:
        folder: the cache folder, which need not exist.
        stems: a glob pattern for the names without suffix.
    """
    found = []
    for path in sorted(folder.glob(f"{stems}.json")):
        library = path.with_suffix(".so")
        with contextlib.suppress(OSError, ValueError, RecursionError):
            manifest = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(manifest, dict) and library.is_file():
                found.append({**manifest, "library": str(library)})
    return found
