"""Progress bars for a terminal."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm


def progress(steps: Iterable[Any] | None = None, **options: Any) -> Any:
    """Return a tqdm bar on stderr; nothing is shown in a log, nor where the cursor cannot move.

    Args:
        steps: What to go through, as for `tqdm.tqdm`.
        options: As for `tqdm.tqdm`.
    """
    # None: tqdm itself looks whether there is a terminal.
    return tqdm(steps, disable=True if os.environ.get("TERM") == "dumb" else None, **options)
