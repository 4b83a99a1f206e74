"""Builds the operators before they are needed, for containers and offline machines."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from kernels.loader import cache
from kernels.loader.cuda import ARCHITECTURES, capabilities, gencode_flags
from kernels.loader.extension import Extension, side_by_side
from kernels.loader.toolchain import BuildError, find_torch
from kernels.ops.cases import choose
from kernels.ops.library import extension
from kernels.ops.report import OK, Outcome, Report, run_check
from kernels.ops.schemas import FAMILIES


def run(
    names: Sequence[str], device: str | None, archs: Sequence[str], *, portable: bool
) -> Report:
    """Build the libraries that the arguments select, in parallel.

    Libraries for CUDA that cannot be built count as a failure only if the user asked for CUDA
    or a GPU to compile for is present.
    """
    needs_cuda = bool(device or archs or os.environ.get(ARCHITECTURES) or capabilities())
    build = partial(_build, needs_cuda=needs_cuda)
    return Report(
        side_by_side(build, choose_libraries(names, device, tuple(archs), portable=portable))
    )


def _build(library: Extension, *, needs_cuda: bool) -> Outcome:
    """Build a library if the cache does not contain it; the outcome is "built" or "cached"."""
    cached = False

    def build() -> str:
        nonlocal cached
        cached = cache.locate(library.library_path().name) is not None
        return str(library.build())

    needed = needs_cuda or not library.cuda
    outcome = run_check(library.name, build, needed=needed, absence_errors=(BuildError,))
    if outcome.result != OK:
        return outcome
    return replace(outcome, result="cached" if cached else "built")


def choose_libraries(
    names: Sequence[str], device: str | None, archs: tuple[str, ...], *, portable: bool
) -> list[Extension]:
    """Return the libraries to build: for each selected folder, one library for each device.

    Args:
        names: operators or folders of operators; if there are none, all are selected.
        device: "cpu", "cuda" or "all"; None for all devices that torch was built for.
        archs: the GPU architectures of CUDA libraries, such as "9.0"; the default if empty.
        portable: True if libraries for the CPU must run on any processor of this
            architecture, False to compile them for this machine's processor.

    Raises:
        BuildError: an architecture has a form that nvcc does not accept.
    """
    folders = choose(names, sorted(FAMILIES))
    gencode_flags(archs)  # Called for its check of the architectures.
    if device is None:
        device = "cpu" if find_torch().cuda is None else "all"
    devices = ["cpu", "cuda"] if device == "all" else [device]
    libraries = []
    for folder in folders:
        for device_type in devices:
            library = extension(folder, device_type)
            native = library.native and not portable
            library_archs = archs if library.cuda else ()
            libraries.append(replace(library, native=native, archs=library_archs))
    return libraries
