"""Long work on a GPU, cut into launches of bounded length that are queued ahead of the device.

A launch that takes seconds cannot be interrupted, and a display driver may kill it. A launch that the host
waits for before it queues the next one leaves the device idle in between. So launches take a fraction of a
second each, and the host stays ahead by two of them, or by as many short ones as give it time for other work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

import torch

LAUNCH_SECONDS = 0.2
"""The time a launch should take, in seconds."""

_AHEAD = 2
_AHEAD_SECONDS = 0.05  # what a trainer does on the host between generations takes some milliseconds
_FIRST_STEPS = 64
_FIRST_DECISIONS = 1 << 22
_GROWTH = 8
_MOST_STEPS = 1 << 20

_seconds_per_step: dict[Hashable, float] = {}
"""The pace measured in this process, by kind of work."""


class LaunchPacer:
    """Queues steps of one kind of work on the current stream of the current device.

    Work of a known kind begins with long launches, if all its steps take the same time. The first launch of
    other work makes at most some millions of decisions; ``decisions`` are those of a step.
    """

    def __init__(self, kind: Hashable, decisions: int = 1, *, steady: bool = True) -> None:
        """Start with nothing queued; ``steady``: all steps take the same time."""
        self._kind = kind
        self._paces = _seconds_per_step if steady else {}
        self._first = max(1, min(_FIRST_STEPS, _FIRST_DECISIONS // decisions))
        self._last = 0
        self._ahead: deque[tuple[torch.cuda.Event, torch.cuda.Event, int]] = deque()

    def run(self, steps: int, launch: Callable[[int], None], check: Callable[[], None] | None = None) -> None:
        """Queue steps, a number at a time; wait while more than a few launches are unfinished.

        ``check`` is called after every launch; an exception ends the work. Queued launches still run, for
        less than a second.
        """
        while steps:
            size = min(steps, self._size())
            # Blocking, so that waiting for it does not spin.
            start, end = (torch.cuda.Event(enable_timing=True, blocking=True) for _ in range(2))
            start.record()
            launch(size)
            end.record()
            self._ahead.append((start, end, size))
            self._last = size
            steps -= size
            self._wait()
            if check is not None:
                check()

    def _size(self) -> int:
        pace = self._paces.get(self._kind)
        if pace is None:
            return self._first
        wanted = max(1, min(_MOST_STEPS, int(LAUNCH_SECONDS / pace)))
        return min(wanted, _GROWTH * self._last) if self._last else wanted

    def _wait(self) -> None:
        """Wait until the host is not too far ahead, and read the times of finished launches."""
        while self._ahead and (self._is_far_ahead() or self._ahead[0][1].query()):
            start, end, size = self._ahead.popleft()
            end.synchronize()
            self._paces[self._kind] = max(start.elapsed_time(end), 1e-3) / 1e3 / size

    def _is_far_ahead(self) -> bool:
        pace = self._paces.get(self._kind)
        if pace is None:
            return True
        return len(self._ahead) > _AHEAD and pace * sum(size for *_, size in self._ahead) > _AHEAD_SECONDS
