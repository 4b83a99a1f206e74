"""Long work on a GPU, cut into launches of bounded length that are queued ahead of the device.

A launch that takes seconds cannot be interrupted, and a display driver may kill it. A launch
that the host waits for before it queues the next one leaves the device idle in between. So
launches take a fraction of a second each, and the host stays ahead by two of them, or by as
many short ones as give it time for other work.
"""

from collections import deque
from collections.abc import Callable, Hashable

import torch

LAUNCH_SECONDS = 0.2
"""The time a launch should take, in seconds."""

_AHEAD = 2  # Launches that may be queued, however long they take.
_AHEAD_SECONDS = 0.05  # Enough for what a trainer does on the host between generations.
_FIRST_STEPS = 64
_FIRST_DECISIONS = 1 << 22
_GROWTH = 8  # A launch has at most so many times the steps of the one before.
_MAX_STEPS = 1 << 20

_seconds_per_step: dict[Hashable, float] = {}
"""The pace measured in this process, by kind of work."""


class LaunchPacer:
    """Queues steps of one kind of work on the current stream of the current device.

    If all steps take the same time, work of a kind that ran before begins with long launches.
    The first launch of other work makes at most some millions of decisions.
    """

    def __init__(self, kind: Hashable, decisions: int = 1, *, steady: bool = True) -> None:
        """Start with nothing queued.

        Args:
            kind: What the time of a step depends on.
            decisions: Decisions of a step.
            steady: Whether all steps take the same time.
        """
        self._kind = kind
        self._paces = _seconds_per_step if steady else {}
        self._first_size = max(1, min(_FIRST_STEPS, _FIRST_DECISIONS // decisions))
        self._last_size = 0
        # The launches that may be unfinished: start, end and number of steps of each.
        self._queued: deque[tuple[torch.cuda.Event, torch.cuda.Event, int]] = deque()

    def run(
        self, steps: int, launch: Callable[[int], None], check: Callable[[], None] | None = None
    ) -> None:
        """Queue a number of steps on the GPU, in launches of a fraction of a second each.

        A launch is one call that makes many steps. Before the next one is queued, this waits
        until only a few launches are unfinished. The last launches may be unfinished when it
        returns.

        Args:
            steps: The number of steps.
            launch: Queues one launch, of as many steps as its argument says.
            check: Called after every launch; an exception ends the work. Launches that are
                queued by then still run, for less than a second.
        """
        while steps:
            size = min(steps, self._next_size())
            # The time between two events tells the size of later launches. Events are blocking
            # so that the thread sleeps while it waits for one.
            start = torch.cuda.Event(enable_timing=True, blocking=True)
            end = torch.cuda.Event(enable_timing=True, blocking=True)
            start.record()
            launch(size)
            end.record()
            self._queued.append((start, end, size))
            self._last_size = size
            steps -= size
            self._wait_for_launches()
            if check is not None:
                check()

    def _next_size(self) -> int:
        """Return how many steps the next launch makes, by the pace of the last ones."""
        pace = self._paces.get(self._kind)  # Seconds per step; None before the first launch.
        if pace is None:
            return self._first_size
        size = max(1, min(_MAX_STEPS, int(LAUNCH_SECONDS / pace)))
        return min(size, _GROWTH * self._last_size) if self._last_size else size

    def _wait_for_launches(self) -> None:
        """Wait while more launches are queued than needed, and learn the pace of finished ones.

        Launches finish in the order in which they were queued.
        """
        while self._queued:
            start, end, size = self._queued[0]
            if not self._is_far_ahead() and not end.query():
                return  # This launch is not finished, and need not be waited for.
            self._queued.popleft()
            end.synchronize()
            milliseconds = max(start.elapsed_time(end), 1e-3)
            self._paces[self._kind] = milliseconds / 1e3 / size

    def _is_far_ahead(self) -> bool:
        """Return whether enough launches are queued to keep the GPU busy meanwhile.

        Before the pace is known, one launch is enough: it shows the pace.
        """
        pace = self._paces.get(self._kind)
        if pace is None:
            return True
        steps_ahead = sum(size for _, _, size in self._queued)
        return len(self._queued) > _AHEAD and pace * steps_ahead > _AHEAD_SECONDS
