"""Runs pytest with what Windows or macOS has, and without a compiler.

python tests/other_system.py win32 tests/portable.py

The standard library, torch, NumPy and other packages are imported before, because they ask for
the system, too. Worker processes run this file first, as all that are spawned do.
"""

import asyncio
import multiprocessing.resource_tracker as tracker
import os
import signal
import subprocess
import sys
import sysconfig
from types import ModuleType

import gymnasium
import numpy
import PIL.Image
import pytest
import torch
import tqdm

PREPARED = (asyncio, subprocess, gymnasium, numpy, PIL, torch, tqdm)
AFFINITY = ("sched_getaffinity", "sched_setaffinity")
ABSENT = {
    "darwin": {os: AFFINITY},
    "win32": {
        os: (
            *(*AFFINITY, "fork", "forkpty", "getuid", "geteuid", "fchmod", "killpg", "setsid"),
            *("mkfifo", "O_NOFOLLOW", "O_CLOEXEC", "O_DIRECTORY"),
        ),
        signal: ("SIGHUP", "SIGTSTP", "SIGKILL", "pthread_sigmask"),
    },
}
MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "tty")


def make_msvcrt() -> ModuleType:
    """Return a module that locks a file as Windows does."""
    import fcntl

    module = ModuleType("msvcrt")
    module.LK_LOCK, module.LK_NBLCK = 1, 2

    def locking(descriptor: int, mode: int, count: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (mode == 2 and fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise PermissionError(13, "Permission denied") from error

    module.locking = locking
    return module


def change_system(name: str) -> None:
    """Take from this process what a system lacks."""
    for module, attributes in ABSENT[name].items():
        for attribute in attributes:
            delattr(module, attribute)
    if name == "win32":
        msvcrt = make_msvcrt()
        sys.modules.update(dict.fromkeys(MODULES), msvcrt=msvcrt)
        tracker._HAVE_SIGMASK = False
    sysconfig.get_config_vars()  # It reads them by the name of the system, and stores them.
    sys.platform = name
    os.environ.pop("CXX", None)
    os.environ["PATH"] = os.path.dirname(sys.executable)  # without a compiler


change_system(sys.argv[1])
if __name__ == "__main__":
    sys.exit(pytest.main(["-n0", "--capture=sys", *sys.argv[2:]]))
