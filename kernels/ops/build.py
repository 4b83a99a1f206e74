"""Builds the operators before they are needed, for containers and for machines without compilers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernels.loader.ahead import build_together
from kernels.loader.cuda import CUDA_TORCH_REMEDY, gencode_flags
from kernels.loader.extension import Extension
from kernels.loader.toolchain import BuildError, find_torch
from kernels.ops.library import extension, operators
from kernels.ops.report import FAILED, Outcome, Report
from kernels.support.names import unknown_name


def run(names: Sequence[str], device: str | None, archs: Sequence[str], *, portable: bool) -> Report:
    """Build the libraries that are wanted, as many at once as there are processors."""
    outcomes = []
    for each in build_together(wanted(names, device, tuple(archs), portable=portable)):
        result = FAILED if each.error else each.outcome
        outcomes.append(Outcome(each.name, result, each.error or each.path, each.seconds))
    return Report(outcomes)


def wanted(
    names: Sequence[str], device: str | None, archs: tuple[str, ...], *, portable: bool
) -> list[Extension]:
    """Return libraries; without names of all operators, without a device for all that torch was built for."""
    known = operators()
    for name in names:
        if name not in known:
            raise unknown_name("operator", name, known)
    gencode_flags(archs)
    torch = find_torch()
    if device in ("cuda", "all") and torch.cuda is None:
        raise BuildError(f"expected a CUDA build of torch, got {torch.version}", CUDA_TORCH_REMEDY)
    devices = ("cpu", "cuda") if device in (None, "all") and torch.cuda else (device or "cpu",)
    found = [extension(name, each) for name in names or known for each in devices]
    return [
        replace(each, native=each.native and not portable, archs=archs if each.cuda else ()) for each in found
    ]
