"""Functions that only some operating systems have, and their replacements on the others.

Linux has everything. macOS has no CPU affinity. Windows has neither the file locks, signals and
file owners of Unix nor its terminals.
"""

import contextlib
import errno
import importlib
import os
import shlex
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

IS_LINUX = sys.platform == "linux"
IS_WINDOWS = sys.platform == "win32"


def _import(name: str) -> Any:
    """Return a module of the standard library, or None if this system lacks it."""
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
    """On Linux, let this process use a single core inside the block."""
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
    """Return the lines of /proc/cpuinfo, or an empty list on other systems than Linux."""
    try:
        return Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return []


def user_id() -> int | None:
    """Return the user ID, or None on a system where files have no owners."""
    return os.getuid() if hasattr(os, "getuid") else None


def join_words(words: Sequence[str]) -> str:
    """Return a line that a shell of this system splits into these words."""
    return subprocess.list2cmdline(words) if IS_WINDOWS else shlex.join(words)


def open_folder(folder: Path) -> int:
    """Open a folder to lock it.

    Windows can only open files, so there it is a file ``.lock`` in the folder.
    """
    if IS_WINDOWS:
        return os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
    return os.open(folder, os.O_RDONLY)


def lock(descriptor: int, *, is_shared: bool = False, waits: bool = False) -> bool:
    """Lock an open file, and return whether its file system supports locks.

    The system releases the lock when the process ends. On Windows every lock is exclusive.

    Raises:
        BlockingIOError: If another process holds the lock and ``waits`` is False.
    """
    try:
        if fcntl is not None:  # Unix
            operation = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
            if not waits:
                # With this flag flock raises BlockingIOError instead of waiting.
                operation |= fcntl.LOCK_NB
            fcntl.flock(descriptor, operation)
        elif msvcrt is not None:  # Windows
            _lock_first_byte(descriptor, waits)
        else:
            return False
    except BlockingIOError:
        # This is also an OSError, but it does not mean that locks are unsupported.
        raise
    except OSError:
        return False
    return True


def _lock_first_byte(descriptor: int, waits: bool) -> None:
    """Lock a file on Windows, where a lock covers bytes. The file may be empty."""
    try:
        msvcrt.locking(descriptor, msvcrt.LK_LOCK if waits else msvcrt.LK_NBLCK, 1)
    except PermissionError as error:
        raise BlockingIOError(errno.EAGAIN, error.strerror) from error


def release(descriptor: int) -> None:
    """Unlock an open file, and close it.

    If a process was forked in the meantime, it also holds the file open. Closing the file here
    would then not release the lock.
    """
    try:
        if fcntl is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def copy_mode(source: Path, file: IO[bytes]) -> None:
    """Copy the permissions of a file to an open file."""
    if hasattr(os, "fchmod"):
        os.fchmod(file.fileno(), stat.S_IMODE(source.stat().st_mode))


def sync_folder(folder: Path) -> None:
    """Wait until a folder's entries are on the disk; on Windows, do nothing."""
    if IS_WINDOWS:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def stop_signals() -> list[signal.Signals]:
    """Return the signals to handle: all but an ignored SIGHUP, which nohup ignores."""
    return [
        number
        for number in STOP_SIGNALS
        if number not in _HANGUPS or signal.getsignal(number) != signal.SIG_IGN
    ]


def leave_stop_signals() -> None:
    """Leave the signals that ask to stop to another thread, or to the parent process.

    On Unix this thread and the processes that it starts block them. On Windows a process must
    ignore them itself.
    """
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    elif threading.current_thread() is threading.main_thread():
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def start_session() -> None:
    """Give this process a session of its own, and leave signals that ask to stop to its parent.

    On Unix the programs that this process starts neither block nor ignore these signals:
    otherwise their own time limits, as those of ``timeout``, could not end them.
    """
    if IS_WINDOWS:
        leave_stop_signals()
        return
    os.setsid()
    for number in STOP_SIGNALS:
        # Programs inherit SIG_IGN, but not a function.
        signal.signal(number, lambda *_: None)
        signal.siginterrupt(number, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def kill_session(process: Any) -> None:
    """Kill a process and, on Unix, the programs of its session."""
    # A process that has not called ``start_session`` yet has no programs.
    with contextlib.suppress(AttributeError, OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def start_resource_tracker() -> None:
    """On Unix, start the helper process that multiprocessing starts before all others."""
    if not IS_WINDOWS:
        importlib.import_module("multiprocessing.resource_tracker").ensure_running()
