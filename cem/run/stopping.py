"""Stop requests: Ctrl-C, SIGTERM, SIGHUP or a deadline set a flag, which the work checks."""

import signal
import threading
import time
from enum import IntEnum
from typing import Any

from kernels.support import ranks
from kernels.support.ranks import Interrupted as Interrupted
from kernels.support.system import stop_signals


class Due(IntEnum):
    """Whether and why a process has to end. Ranks agree on the greatest value of all ranks."""

    NO = 0
    BY_DEADLINE = 1
    BY_REQUEST = 2


_NOT_DUE = (Due.NO, 0)  # a constant, because access to a member of an enumeration is slow


class StopRequest:
    """A flag that SIGINT, SIGTERM, SIGHUP, a deadline or a call of ``request`` sets.

    Examples:
        >>> from cem import StopRequest
        >>> with StopRequest() as stop:  # the handlers are in place inside the block
        ...     for step in range(1000):
        ...         if step == 3:
        ...             stop.request()
        ...         if stop.requested:
        ...             break
        >>> step
        3

    As a context manager it handles SIGINT, SIGTERM and SIGHUP (a terminal was closed) and
    restores the earlier handlers on exit. It does not handle a SIGHUP that is ignored, as with
    nohup, and outside the main thread it handles no signals. Python runs handlers between two
    bytecodes of the main thread, so a long call into C delays them. Therefore split long work,
    and ``check()`` between the parts. A SIGINT after a request raises KeyboardInterrupt at
    once.

    Attributes:
        requested: Whether a signal or ``request`` asked to stop; not whether the deadline has
            passed.
        signum: The number of the first signal, such as 2 for SIGINT; None if there was none.
        deadline: The ``time.monotonic()`` of the deadline, in seconds; None: no deadline.
    """

    deadline: float | None = None

    def __init__(self) -> None:
        """Start without a request and without a deadline."""
        self._previous: dict[signal.Signals, Any] = {}
        self.forget()

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def own_reason(self) -> tuple[int, int]:
        """A ``Due``: why this process has to end. With it the number of the signal, or 0."""
        if self.requested:
            return Due.BY_REQUEST, self.signum or 0
        if self.expired:
            return Due.BY_DEADLINE, 0
        return _NOT_DUE

    @property
    def due(self) -> tuple[int, int]:
        """``own_reason``, or with several ranks the reason agreed on in ``run_collective``."""
        return self._agreed if ranks.count() > 1 else self.own_reason

    def agree(self, reason: int, signum: int) -> None:
        """Store the reason and signal on which all ranks have agreed."""
        self._agreed = reason, signum

    def request(self) -> None:
        """Request a stop."""
        self.requested = True

    def forget(self) -> None:
        """Withdraw the request, so that the work may continue."""
        self.requested = False
        self._agreed = (0, 0)  # what all ranks have agreed on, as `agree` stores it
        self.signum: int | None = None

    def check(self) -> None:
        """Raise Interrupted if a stop is due; cheap enough for an inner loop."""
        if self.requested or self.expired:
            raise Interrupted("the work was asked to stop")

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            self._previous = {
                number: signal.signal(number, self._handle) for number in stop_signals()
            }
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            # None means a handler that was not set by Python, so Python cannot restore it.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous = {}

    def _handle(self, number: int, frame: object) -> None:
        """Request a stop; a second Ctrl-C raises KeyboardInterrupt at once."""
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.requested:
            self.signum = number
        self.requested = True
