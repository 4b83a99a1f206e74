"""Lets Ctrl-C end a command with one line, even while the command is being imported."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

INTERRUPTED = 130
"""The exit status that shells report for a process that Ctrl-C ended."""

_LINE = "interrupted\n"


@contextmanager
def one_line_interrupts() -> Iterator[None]:
    """Let Ctrl-C print one line on stderr and end the process with exit status 130.

    During an import the process ends at once, because a KeyboardInterrupt inside the extension
    modules of NumPy and torch would abort the process or become an ImportError.

    Raises:
        SystemExit: After Ctrl-C at any other time.
    """
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with handler_of_interrupts(_interrupt) if is_usual else nullcontext():
        try:
            yield
        except KeyboardInterrupt:
            sys.stderr.write(_LINE)
            raise SystemExit(INTERRUPTED) from None


@contextmanager
def handler_of_interrupts(handler: Any) -> Iterator[None]:
    """Use a handler for SIGINT inside the block.

    Python allows that only in the main thread; in other threads this does nothing.
    """
    usual = signal.getsignal(signal.SIGINT)
    is_changed = threading.current_thread() is threading.main_thread() and callable(usual)
    if is_changed:
        signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        if is_changed:
            signal.signal(signal.SIGINT, usual)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End the process if a frame of the stack is an import, else raise KeyboardInterrupt."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, _LINE.encode())
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt
