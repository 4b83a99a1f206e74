"""Long work on a GPU, cut into launches of bounded length that are queued ahead of the device.

A launch that takes seconds cannot be interrupted, and a display driver may kill it. A launch that the host
waits for before it queues the next one leaves the device idle in between. So launches take a fraction of a
second each, and the host stays a few of them ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

import torch

LAUNCH_SECONDS = 0.2
"""How long a launch should take."""

_AHEAD = 2
_FIRST_STEPS = 64
_FIRST_WORK = 1 << 22
_GROWTH = 8
_MOST_STEPS = 1 << 20

_seconds_per_step: dict[Hashable, float] = {}
"""What was measured in this process, by kind of work."""


class LaunchPacer:
    """Queues steps of one kind of work on the current stream of the current device.

    Args:
        kind: What the time of a step depends on. Work of a kind that was seen before begins with long
            launches at once.
        work: How much there is to do in a step, such as decisions; the first launch does not do more than
            some millions of it.
        steady: Whether steps take the same time from first to last. Where they become cheaper, the pace at
            the end of this work says nothing of the beginning of the next of its kind, which then begins with
            short launches, too.
    """

    def __init__(self, kind: Hashable, work: int = 1, *, steady: bool = True) -> None:
        """Start with nothing queued; see the class."""
        self._kind = kind
        self._paces = _seconds_per_step if steady else {}
        self._first = max(1, min(_FIRST_STEPS, _FIRST_WORK // work))
        self._last = 0
        self._ahead: deque[tuple[torch.cuda.Event, torch.cuda.Event, int]] = deque()

    def run(self, steps: int, launch: Callable[[int], None], check: Callable[[], None] | None = None) -> None:
        """Queue steps; wait where more than a few launches are unfinished.

        Args:
            steps: How many in all, at least 0.
            launch: Queues as many as it is told.
            check: Called after every launch; what it raises ends the work. What was queued goes on, for
                less than a second.
        """
        while steps:
            size = min(steps, self._size())
            # Blocking, so that waiting for it leaves the processor alone.
            start, end = (torch.cuda.Event(enable_timing=True, blocking=True) for _ in range(2))
            start.record()
            launch(size)
            end.record()
            self._ahead.append((start, end, size))
            self._last = size
            steps -= size
            self._wait(_AHEAD if self._kind in self._paces else 0)
            if check is not None:
                check()

    def _size(self) -> int:
        pace = self._paces.get(self._kind)
        if pace is None:
            return self._first
        wanted = max(1, min(_MOST_STEPS, int(LAUNCH_SECONDS / pace)))
        return min(wanted, _GROWTH * self._last) if self._last else wanted

    def _wait(self, unfinished: int) -> None:
        """Wait until no more launches than this are unfinished, and take the times of those that are done."""
        while self._ahead and (len(self._ahead) > unfinished or self._ahead[0][1].query()):
            start, end, size = self._ahead.popleft()
            end.synchronize()
            self._paces[self._kind] = max(start.elapsed_time(end), 1e-3) / 1e3 / size
