"""What only some systems have, and what takes its place elsewhere.

All packages ask here for it. Linux has everything; macOS has no affinity of cores, and Windows
has neither Unix's locks, signals and owners of files nor its terminals.
"""

import contextlib
import errno
import importlib
import os
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

IS_LINUX = sys.platform == "linux"
IS_WINDOWS = sys.platform == "win32"


def _import(name: str) -> Any:
    """Return a module of the standard library, or None on a system that lacks it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


fcntl = _import("fcntl")
msvcrt = _import("msvcrt")
termios = _import("termios")
tty = _import("tty")

_HANGUPS = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, *_HANGUPS)
"""The signals that ask a process to end."""


def usable_cores() -> int:
    """Return the number of cores that this process may use.

    Containers and SLURM jobs may use only some of the machine's cores.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Let this process use a single core inside the block, on Linux."""
    if not hasattr(os, "sched_getaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def processor_lines() -> list[str]:
    """Return the lines of Linux's /proc/cpuinfo, none elsewhere."""
    try:
        return Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return []


def user_id() -> int | None:
    """Return the number of this user, or None where files have no owners and modes."""
    return os.getuid() if hasattr(os, "getuid") else None


def open_folder(folder: Path) -> int:
    """Open a folder to lock it: on Windows, which opens files alone, a file ``.lock`` in it."""
    if IS_WINDOWS:
        return os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
    return os.open(folder, os.O_RDONLY)


def lock(descriptor: int, *, is_shared: bool = False, waits: bool = False) -> bool:
    """Lock what is open, and return False where the system or its file system has no locks.

    The system releases the lock when the process ends. On Windows every lock is exclusive.

    Raises:
        BlockingIOError: If another process holds the lock, unless this ``waits``.
    """
    try:
        if fcntl is not None:
            operation = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
            fcntl.flock(descriptor, operation if waits else operation | fcntl.LOCK_NB)
        elif msvcrt is not None:
            _lock_first_byte(descriptor, waits)
        else:
            return False
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _lock_first_byte(descriptor: int, waits: bool) -> None:
    """Lock a file on Windows, where a lock covers bytes, which need not exist."""
    try:
        msvcrt.locking(descriptor, msvcrt.LK_LOCK if waits else msvcrt.LK_NBLCK, 1)
    except PermissionError as error:
        raise BlockingIOError(errno.EAGAIN, error.strerror) from error


def release(descriptor: int) -> None:
    """Release the lock of what is open, and close it.

    Closing alone would not release the lock if a process that was forked meanwhile has it open,
    too.
    """
    try:
        if fcntl is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def copy_mode(source: Path, file: IO[bytes]) -> None:
    """Give an open file the permissions of another one."""
    if hasattr(os, "fchmod"):
        os.fchmod(file.fileno(), stat.S_IMODE(source.stat().st_mode))


def sync_folder(folder: Path) -> None:
    """Wait until a folder's entries are on the disk, which Windows cannot."""
    if IS_WINDOWS:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def stop_signals() -> list[signal.Signals]:
    """Return the signals to handle: SIGHUP is left if it is ignored, as by nohup."""
    return [
        number
        for number in STOP_SIGNALS
        if number not in _HANGUPS or signal.getsignal(number) != signal.SIG_IGN
    ]


def leave_stop_signals() -> None:
    """Leave the signals that ask to end to another thread, or to the process of this one.

    Unix blocks them in this thread and in the processes that it starts. A process on Windows
    has to ignore them itself.
    """
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    elif threading.current_thread() is threading.main_thread():
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def start_resource_tracker() -> None:
    """Start the process that multiprocessing starts before others, on Unix."""
    if not IS_WINDOWS:
        importlib.import_module("multiprocessing.resource_tracker").ensure_running()
