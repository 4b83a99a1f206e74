"""Builds the operators before they are needed, for containers and for machines without compilers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernels.loader import cache
from kernels.loader.cuda import gencode_flags
from kernels.loader.extension import Extension, side_by_side
from kernels.loader.toolchain import find_torch
from kernels.ops.library import extension, operators
from kernels.ops.report import FAILED, Outcome, Report, ask
from kernels.support.names import unknown_name


def run(names: Sequence[str], device: str | None, archs: Sequence[str], *, portable: bool) -> Report:
    """Build the libraries that are wanted, as many at once as there are processors."""
    return Report(side_by_side(_build, wanted(names, device, tuple(archs), portable=portable)))


def _build(library: Extension) -> Outcome:
    cached = False

    def build() -> str:
        nonlocal cached
        cached = cache.locate(library.library_path().name) is not None
        return str(library.build())

    outcome = ask(library.name, build)
    return outcome if outcome.result == FAILED else replace(outcome, result="cached" if cached else "built")


def wanted(
    names: Sequence[str], device: str | None, archs: tuple[str, ...], *, portable: bool
) -> list[Extension]:
    """Return libraries; without names of all operators, without a device for all that torch was built for."""
    known = operators()
    for name in names:
        if name not in known:
            raise unknown_name("operator", name, known)
    gencode_flags(archs)
    both = device == "all" or (device is None and find_torch().cuda is not None)
    devices = ("cpu", "cuda") if both else (device or "cpu",)
    found = [extension(name, each) for name in names or known for each in devices]
    return [
        replace(each, native=each.native and not portable, archs=archs if each.cuda else ()) for each in found
    ]
