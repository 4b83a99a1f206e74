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
from kernels.ops.report import OK, Outcome, Report, ask
from kernels.ops.schemas import FAMILIES


def run(
    names: Sequence[str], device: str | None, archs: Sequence[str], *, portable: bool
) -> Report:
    """Build the libraries that the arguments name, as many at once as there are processors.

    Where nobody asks for CUDA and there is no GPU to compile for, the libraries for CUDA may be
    absent.
    """
    needs_cuda = bool(device or archs or os.environ.get(ARCHITECTURES) or capabilities())
    build = partial(_build, needs_cuda=needs_cuda)
    return Report(
        side_by_side(build, choose_libraries(names, device, tuple(archs), portable=portable))
    )


def _build(library: Extension, *, needs_cuda: bool) -> Outcome:
    """Build a library unless the cache has it, and return which of both it was."""
    cached = False

    def build() -> str:
        nonlocal cached
        cached = cache.locate(library.library_path().name) is not None
        return str(library.build())

    needed = needs_cuda or not library.cuda
    outcome = ask(library.name, build, needed=needed, excused=(BuildError,))
    if outcome.result != OK:
        return outcome
    return replace(outcome, result="cached" if cached else "built")


def choose_libraries(
    names: Sequence[str], device: str | None, archs: tuple[str, ...], *, portable: bool
) -> list[Extension]:
    """Return the libraries to build, by default all for every device that torch supports."""
    folders = choose(names, sorted(FAMILIES))
    gencode_flags(archs)  # raises an error for what is no architecture
    both = device == "all" or (device is None and find_torch().cuda is not None)
    devices = ("cpu", "cuda") if both else (device or "cpu",)
    libraries = []
    for name in folders:
        for device_type in devices:
            library = extension(name, device_type)
            native = library.native and not portable
            libraries.append(
                replace(library, native=native, archs=archs if library.cuda else ())
            )
    return libraries
