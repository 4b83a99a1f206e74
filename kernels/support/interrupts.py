"""Ctrl-C ends a command in one line, also while it is being imported."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

INTERRUPTED = 130
"""What a shell says of a process that Ctrl-C ended."""

_LINE = "interrupted\n"


@contextmanager
def one_line_interrupts() -> Iterator[None]:
    """Turn Ctrl-C into one line on stderr and exit status 130.

    In the middle of an import the process ends at once: a KeyboardInterrupt inside the
    extension modules of NumPy and torch aborts, or becomes an ImportError.

    Raises:
        SystemExit: After Ctrl-C elsewhere.
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
    """Let a handler take SIGINT inside the block.

    Python allows that only in the main thread; in others nothing changes.
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
    """End the process where one of the frames is an import, else raise KeyboardInterrupt."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, _LINE.encode())
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt
