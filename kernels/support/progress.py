"""Shows the progress of a long task: as a bar on a terminal, as plain lines in a log."""

import os
import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

from kernels.support.printable import printable

LOG_SECONDS = 10.0
"""The time between two lines of a log, in seconds."""


def progress(steps: Iterable[Any] | None = None, **options: Any) -> Any:
    """Return a tqdm bar on stderr; in a log and on a dumb terminal it prints plain lines.

    The arguments are those of tqdm. At its end the bar disappears.
    """
    options["desc"] = printable(options.get("desc") or "progress")
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        done = "{percentage:.0f}%" if options.get("total") else "{n:,.0f}{unit}"
        options["bar_format"] = f"{{desc}}: {done} after {{elapsed}}{{postfix}}"
        options |= {"file": _Log(), "miniters": 0}
        options |= {"mininterval": LOG_SECONDS, "delay": LOG_SECONDS}
    return tqdm(steps, leave=False, **options)


class _Log:
    """A file for tqdm that prints the text as lines."""

    def write(self, text: str) -> None:
        if line := text.strip():
            print(line, file=sys.stderr, flush=True)
