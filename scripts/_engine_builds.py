"""Compiles engines before they are wanted, several at once: none is then compiled while a clock runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from tetris import feature_names, native


def build_engines(features: Iterable[tuple[str, int]]) -> None:
    """Compile the C++ and the CUDA engine of feature sets on boards of a width, where they are not there yet.

    And what importance splitting takes on a GPU.

    Args:
        features: Feature sets, each with the number of columns.

    Raises:
        kernels.build.BuildError: If one cannot be built.
    """
    names = dict.fromkeys(feature_names(name, width) for name, width in features)
    extensions = [make(each) for each in names for make in (native.extension, native.cuda_extension)]
    extensions.append(native.resampling_extension())
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        builds = [pool.submit(extension.build, quiet=True) for extension in extensions]
        for build in builds:
            build.result()
