"""Progress of a long task: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from tqdm import tqdm

from kernels.support.printable import printable

LOG_SECONDS = 10.0
"""The time between two lines in a log, in seconds."""


def progress(steps: Iterable[Any] | None = None, **options: Any) -> Any:
    """Return a tqdm bar on stderr, or plain lines in a log and on a dumb terminal; arguments as of tqdm."""
    label = options["desc"] = printable(options.get("desc") or "")
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return tqdm(steps, **options)
    return LogLines(steps, label or "progress", options.get("total"), options.get("unit", "").strip())


class LogLines:
    """The part of tqdm's interface that is used here; prints a line every `LOG_SECONDS`.

    Attributes:
        n: The steps done.
    """

    def __init__(self, steps: Iterable[Any] | None, label: str, total: float | None, unit: str) -> None:
        """Begin; ``total`` is the number of steps in units, None where it is unknown."""
        self.n = 0.0
        self._steps = steps
        self._label = label
        self._total = total
        self._unit = unit
        self._text = ""
        self._began = self._shown = time.monotonic()

    def update(self, steps: float = 1) -> None:
        """Count steps, and print a line when one is due."""
        self.n += steps
        now = time.monotonic()
        if now - self._shown >= LOG_SECONDS:
            done = f"{self.n / self._total:.0%}" if self._total else f"{self.n:,.0f} {self._unit}"
            more = f", {self._text}" if self._text else ""
            print(f"{self._label}: {done} after {now - self._began:.0f} s{more}", file=sys.stderr, flush=True)
            self._shown = now

    def set_postfix_str(self, text: str, refresh: bool = True) -> None:
        """Set the end of the next line."""
        self._text = text

    def __iter__(self) -> Iterator[Any]:
        for step in self._steps or ():
            yield step
            self.update()

    def __enter__(self) -> LogLines:
        return self

    def __exit__(self, *error: object) -> None:
        pass  # a log keeps its lines
