"""Builds several libraries before they are needed, side by side."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from kernels.loader import cache
from kernels.loader.extension import Extension
from kernels.loader.toolchain import BuildError


class Built(NamedTuple):
    """What became of one library."""

    name: str
    outcome: str  # "built", "cached" or "failed"
    seconds: float
    path: str = ""
    error: str = ""


def build_missing(extensions: Iterable[Extension]) -> None:
    """Build the libraries that loading would have to build, see `build_together`."""
    if missing := [each for each in extensions if each.find() is None]:
        build_together(missing)


def build_together(extensions: Sequence[Extension]) -> tuple[Built, ...]:
    """Build libraries, as many at once as there are processors; one that fails stops no other."""
    with ThreadPoolExecutor(min(len(extensions), len(os.sched_getaffinity(0)))) as pool:
        return tuple(pool.map(_build, extensions))


def _build(wanted: Extension) -> Built:
    began = time.monotonic()
    try:
        cached = cache.locate(wanted.library_path().name) is not None
        path = wanted.build()
    except BuildError as error:
        return Built(wanted.name, "failed", time.monotonic() - began, error=str(error))
    return Built(wanted.name, "cached" if cached else "built", time.monotonic() - began, str(path))
