"""Builds several libraries before they are needed, side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from kernels.loader.extension import Extension
from kernels.loader.toolchain import BuildError

_Result = TypeVar("_Result")


def side_by_side(build: Callable[[Extension], _Result], extensions: Sequence[Extension]) -> list[_Result]:
    """Return what ``build`` makes of each library, as many at once as there are processors."""
    with ThreadPoolExecutor(min(len(extensions), len(os.sched_getaffinity(0)))) as pool:
        return list(pool.map(build, extensions))


def build_missing(extensions: Iterable[Extension]) -> None:
    """Build the libraries that loading would have to build; of one that fails, loading says why."""

    def build(extension: Extension) -> None:
        with suppress(BuildError):
            extension.build()

    if missing := [each for each in extensions if each.find() is None]:
        side_by_side(build, missing)
