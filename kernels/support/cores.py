"""The cores of this process."""

import os


def usable_cores() -> int:
    """Return the number of cores that this process may use.

    Containers and SLURM jobs may use only some of the machine's cores.
    """
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
