"""Runs pytest with what Windows or macOS has, and without a compiler.

python tests/other_system.py win32 tests/portable.py

The standard library and other packages are imported before, because they ask for the system,
too. Worker processes run this file first, as all that are spawned do.
"""

import fcntl
import importlib
import multiprocessing.resource_tracker as tracker
import os
import signal
import sys
import sysconfig
from types import SimpleNamespace
from typing import Any

import pytest

BEFORE = ("asyncio", "gymnasium", "multiprocessing.connection", "PIL.Image", "torch", "tqdm")
AFFINITY = ("sched_getaffinity", "sched_setaffinity")
UNIX = ("fork", "getuid", "geteuid", "fchmod", "mkfifo", "killpg", "setsid")
FLAGS = ("O_NOFOLLOW", "O_CLOEXEC", "O_DIRECTORY")
ABSENT: dict[str, dict[Any, tuple[str, ...]]] = {
    "darwin": {os: AFFINITY},
    "win32": {
        os: AFFINITY + UNIX + FLAGS,
        signal: ("SIGHUP", "SIGTSTP", "pthread_sigmask"),
    },
}
MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "tty")


def lock(descriptor: int, mode: int, count: int) -> None:
    """Lock a file as Windows does."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | mode)
    except BlockingIOError as error:
        raise PermissionError(13, "Permission denied") from error


def change_system(name: str) -> None:
    """Take from this process what a system lacks."""
    for module in BEFORE:
        importlib.import_module(module)
    sysconfig.get_config_vars()  # It reads them by the name of the system, and stores them.
    for place, attributes in ABSENT[name].items():
        for attribute in attributes:
            delattr(place, attribute)
    if name == "win32":
        tracker._HAVE_SIGMASK = False
        sys.modules.update(dict.fromkeys(MODULES))
        msvcrt = SimpleNamespace(LK_LOCK=0, LK_NBLCK=fcntl.LOCK_NB, locking=lock)
        sys.modules["msvcrt"] = msvcrt
    sys.platform = name
    os.environ.pop("CXX", None)
    os.environ["PATH"] = os.path.dirname(sys.executable)  # without a compiler


change_system(sys.argv[1])
if __name__ == "__main__":
    sys.exit(pytest.main(["-n0", "--capture=sys", *sys.argv[2:]]))
