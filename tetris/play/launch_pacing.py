"""Cuts long work on a GPU into short launches, and queues them ahead of the device.

A launch that takes seconds cannot be interrupted, and a display driver may kill it. If the host
waits for each launch before it queues the next one, the device is idle in between. So a launch
takes a fraction of a second, and the host queues two of them ahead, or more if they are short,
so that it has time for other work.
"""

from collections import deque
from collections.abc import Callable, Hashable

import torch

LAUNCH_SECONDS = 0.2
"""The time a launch should take, in seconds."""

_AHEAD = 2  # So many launches may be unfinished, however long they take.
_AHEAD_SECONDS = 0.05  # Enough for what a trainer does on the host between generations.
_FIRST_STEPS = 64
_FIRST_DECISIONS = 1 << 22
_GROWTH = 8  # A launch has at most this many times the steps of the launch before it.
_MAX_STEPS = 1 << 20

_seconds_per_step: dict[Hashable, float] = {}
"""The pace that was measured in this process, for each kind of work."""


class LaunchPacer:
    """Queues steps of one kind of work on the current stream of the current device.

    The first launch is small: it makes at most a few million decisions. But if all steps take
    the same time and the same kind of work ran before, the first launch is already long.
    """

    def __init__(self, kind: Hashable, decisions: int = 1, *, steady: bool = True) -> None:
        """Start with nothing queued.

        Args:
            kind: All that the time of a step depends on.
            decisions: The number of decisions in a step.
            steady: Whether all steps take the same time.
        """
        self._kind = kind
        # The seconds per step, by the kind of work. If they do not change, all pacers of this
        # process share what they have measured.
        self._paces = _seconds_per_step if steady else {}
        # The numbers of steps of the first launch, and of the last launch so far.
        self._first_size = max(1, min(_FIRST_STEPS, _FIRST_DECISIONS // decisions))
        self._last_size = 0
        # The launches that may be unfinished: the start, the end and the steps of each.
        self._queued: deque[tuple[torch.cuda.Event, torch.cuda.Event, int]] = deque()

    def run(
        self, steps: int, launch: Callable[[int], None], check: Callable[[], None] | None = None
    ) -> None:
        """Queue ``steps`` steps on the GPU, in launches that each take a fraction of a second.

        A launch is one call that makes many steps. After each launch this method waits until
        only a few launches are unfinished. When it returns, the last launches may still be
        running.

        Args:
            steps: The number of steps.
            launch: Called with a number of steps; it queues one launch that makes them.
            check: Called after every launch. If it raises an exception, no more launches are
                queued. Launches that are already queued still run, for less than a second.
        """
        while steps:
            size = min(steps, self._next_size())
            # `_wait_for_launches` measures the time between the two events, from which
            # `_next_size` computes the size of later launches. A thread that waits for a
            # blocking event sleeps.
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
        """Return how many steps the next launch makes, from the pace of the last launches."""
        pace = self._paces.get(self._kind)  # Seconds per step; None before the first launch.
        if pace is None:
            return self._first_size
        size = max(1, min(_MAX_STEPS, int(LAUNCH_SECONDS / pace)))
        return min(size, _GROWTH * self._last_size) if self._last_size else size

    def _wait_for_launches(self) -> None:
        """Measure the pace of finished launches, and wait while too many are unfinished.

        Launches finish in the order in which they were queued.
        """
        while self._queued:
            start, end, size = self._queued[0]
            if not self._is_far_ahead() and not end.query():
                return  # The oldest launch is not finished, but there is no need to wait.
            self._queued.popleft()
            end.synchronize()
            milliseconds = max(start.elapsed_time(end), 1e-3)
            self._paces[self._kind] = milliseconds / 1e3 / size

    def _is_far_ahead(self) -> bool:
        """Return whether the host should wait, because enough launches keep the GPU busy.

        Before the pace is known, one launch is enough: its end shows the pace.
        """
        pace = self._paces.get(self._kind)
        if pace is None:
            return True
        steps_ahead = sum(size for _, _, size in self._queued)
        return len(self._queued) > _AHEAD and pace * steps_ahead > _AHEAD_SECONDS
