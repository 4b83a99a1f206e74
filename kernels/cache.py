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

from kernels.toolchain import BuildError

VARIABLE = "CEM_TETRIS_CACHE"
_WORK_SUFFIX = ".work"
_POLL_SECONDS = 0.05
_QUIET_SECONDS = 5.0


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
        candidates += filter(_is_mine_alone, [_private_path()])
    return [folder for folder in candidates if folder.is_absolute() and folder.is_dir()]


def locate(file: str) -> Path | None:
    """Returns the library of a file name in one of the folders, or None; a damaged one does not count."""
    return next((folder / file for folder in folders() if is_whole(folder / file)), None)


def is_whole(library: Path) -> bool:
    """Tells whether a library is there and has the digest of its manifest: loading a torn one is SIGBUS."""
    try:
        manifest = json.loads(library.with_suffix(".json").read_text(encoding="utf-8"))
        return isinstance(manifest, dict) and manifest.get("sha256") == _digest(library)
    except (OSError, ValueError, RecursionError):
        return False


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


def _is_mine_alone(folder: Path) -> bool:
    """Tells whether nobody else can put a file, which would then be loaded, into a folder."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


@functools.lru_cache(maxsize=4)
def _private_dir(refused: Path) -> Path:
    """Returns a folder of this user alone under the temporary one."""
    try:
        folder = _private_path()
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unusable(refused, error) from error
    if not _is_mine_alone(folder):
        raise BuildError(f"expected {folder} to be a folder of yours alone", f"remove it, or set {VARIABLE}")
    print(
        f"kernels: {refused} cannot be written, building in {folder} ({VARIABLE} chooses another)",
        file=sys.stderr,
    )
    return folder


@contextlib.contextmanager
def lock(library: Path) -> Iterator[None]:
    """Holds the right to build one library, waiting for whoever has it.

    The kernel drops a flock with the process that holds it, so a killed build blocks nobody.

    Raises:
        BuildError: the cache folder cannot be written.
    """
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        handle = _open_lock(library.with_suffix(".lock"))
    except OSError as error:
        raise _unusable(library.parent, error) from error
    try:
        _wait_for(handle, library)
        yield
    finally:
        # Unlocked first: a process forked meanwhile has the file open too, and closing it would not free it.
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _open_lock(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except PermissionError:
        if not path.exists():
            raise
        # Another user's, which can be locked all the same.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _unusable(folder: Path, error: OSError) -> BuildError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = (
        f"make room, or set {VARIABLE} to another folder" if full else f"set {VARIABLE} to a folder of yours"
    )
    return BuildError(f"expected a cache folder that can be written, got {folder} ({error.strerror})", remedy)


def _wait_for(handle: int, library: Path) -> None:
    began, told = time.monotonic(), False
    while not _try_lock(handle):
        if not told and time.monotonic() - began > _QUIET_SECONDS:
            print(
                f"kernels: waiting for another process that builds {library.stem}",
                file=sys.stderr,
                flush=True,
            )
            told = True
        time.sleep(_POLL_SECONDS)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # a network file system without locks
        raise BuildError(
            f"cannot lock a file in the cache ({error.strerror})", f"set {VARIABLE} to a local folder"
        ) from error
    return True


@contextlib.contextmanager
def work_dir(library: Path) -> Iterator[Path]:
    """Makes a fresh folder to build in, and removes it afterwards.

    Its name is never used twice: the compilers of a killed build may still run, and what they write must not
    meet the next build's files. The caller holds the library's lock.

    Raises:
        BuildError: the disk is full, or another of its errors came up inside.
    """
    sweep(library)
    work = None
    try:
        work = Path(tempfile.mkdtemp(prefix=f"{library.stem}.", suffix=_WORK_SUFFIX, dir=library.parent))
        yield work
    except OSError as error:
        raise _unusable(library.parent, error) from error
    finally:
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)


def sweep(library: Path) -> None:
    """Removes what killed builds left: folders whose library nobody else is building now.

    Args:
        library: the library whose lock the caller holds.
    """
    for work in library.parent.glob(f"*{_WORK_SUFFIX}"):
        stem = work.name[: -len(_WORK_SUFFIX)].rpartition(".")[0]
        if stem == library.stem:
            shutil.rmtree(work, ignore_errors=True)
            continue
        with contextlib.suppress(OSError):
            handle = _open_lock(library.with_name(f"{stem}.lock"))
            try:
                if _try_lock(handle):
                    shutil.rmtree(work, ignore_errors=True)
            finally:
                os.close(handle)


def install(built: Path, manifest: dict[str, Any], library: Path) -> None:
    """Moves a finished library and its manifest, with its digest, from the work folder into place.

    The library comes last. Whoever sees it therefore sees all of it, and its manifest.
    """
    draft = built.with_suffix(".json")
    draft.write_text(json.dumps({**manifest, "sha256": _digest(built)}, indent=2) + "\n", encoding="utf-8")
    for path, target in ((draft, library.with_suffix(".json")), (built, library)):
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
