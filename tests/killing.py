"""Kill a training run at random moments: for the tests of resumption, in processes of their own."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable


def kill_later(child: int, newest: Callable[[], int], moments: random.Random, most: int, last: int) -> bool:
    """Kill a run some generations on, or in the first milliseconds of its life; False if it had ended.

    Args:
        child: The process.
        newest: Returns the generation of the newest checkpoint.
        moments: Chooses the moment.
        most: The most generations until then.
        last: The generation by which it is killed in any case.
    """
    if moments.random() < 0.75:
        goal = min(newest() + moments.randint(1, most), last)
        while newest() < goal and os.waitpid(child, os.WNOHANG) == (0, 0):
            time.sleep(0.0005)
    time.sleep(moments.uniform(0.0, 0.01))
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])
