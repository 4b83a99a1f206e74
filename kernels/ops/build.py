"""Builds the operators before they are needed: for containers, and for machines without compilers.

What it builds lies in the cache like everything else. A machine without tools, or with other GPUs, takes it
from there: `kernels.loader.extension.Extension.find`.
"""

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
    """Build operators, as many at once as there are processors.

    Args:
        names: the operators' folders; all where it is empty.
        device: ``"cpu"``, ``"cuda"`` or ``"all"``; None: what the installed torch was built for.
        archs: the GPUs to compile for, see `Extension`.
        portable: build the CPU side for any processor of this kind of machine, not for this very one.

    Raises:
        ValueError: there is no such operator.
        BuildError: torch is too old, or no CUDA build where CUDA was asked for; or an architecture is none.
    """
    outcomes = []
    for each in build_together(wanted(names, device, tuple(archs), portable=portable)):
        result = FAILED if each.error else each.outcome
        outcomes.append(Outcome(each.name, result, each.error or each.path, each.seconds))
    return Report(outcomes)


def wanted(
    names: Sequence[str], device: str | None, archs: tuple[str, ...], *, portable: bool
) -> list[Extension]:
    """Return the libraries that `run` builds."""
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
