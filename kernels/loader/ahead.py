"""Builds the operators before they are needed: for containers, and for machines without compilers.

What it builds lies in the cache like everything else. A machine with other tools, or with none, takes it from
there as ``kernels.loader.prebuilt`` says.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from typing import Any

from kernels.loader import Extension, cache, probe
from kernels.loader.cuda import CUDA_TORCH_REMEDY, gencode_flags
from kernels.loader.toolchain import BuildError, find_torch
from kernels.ops.library import extension, operators
from kernels.support.names import unknown_name

DEVICES = ("cpu", "cuda", "all")
_SILENT_SECONDS = 10.0  # the most between two lines


@dataclass(frozen=True)
class Built:
    """What became of one library.

    Attributes:
        name: the library, for example ``"sigmoid_cuda"``.
        outcome: ``"built"``, ``"cached"`` or ``"failed"``.
        seconds: how long it took.
        path: where it is, empty where it failed.
        error: why it failed, empty elsewhere.
    """

    name: str
    outcome: str
    seconds: float
    path: str = ""
    error: str = ""


@dataclass(frozen=True)
class Report:
    """What became of all libraries, in the order in which they were asked for."""

    built: tuple[Built, ...]

    @property
    def works(self) -> bool:
        """Whether every library is there."""
        return all(built.outcome != "failed" for built in self.built)

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain values, for JSON."""
        return {"works": self.works, "built": [asdict(built) for built in self.built]}

    def __str__(self) -> str:
        """The report as a table, with the errors after it, each once."""
        width = max(len(built.name) for built in self.built)
        lines = [
            f"{built.name:<{width}}  {built.outcome:<6}  {built.seconds:6.1f} s  {built.path}".rstrip()
            for built in self.built
        ]
        names: dict[str, list[str]] = {}
        for built in self.built:
            if built.error:
                names.setdefault(built.error, []).append(built.name)
        lines += [f"\n{', '.join(failed)}: {error}" for error, failed in names.items()]
        return "\n".join(lines)


def run(
    names: Sequence[str] = (), device: str | None = None, archs: Sequence[str] = (), *, portable: bool = False
) -> Report:
    """Builds operators, as many at once as there are processors, and says on stderr how far it is.

    Args:
        names: the operators' folders; all, and the doctor's own operator, where it is empty.
        device: ``"cpu"``, ``"cuda"`` or ``"all"``; by default what the installed torch was built for.
        archs: the GPUs to compile for, for example ``["8.0", "9.0+PTX"]``; by default those of
            ``$TORCH_CUDA_ARCH_LIST``, else this machine's.
        portable: build the CPU side for any processor of this kind of machine, not for this very one.

    Raises:
        ValueError: there is no such operator, device or architecture.
        BuildError: torch is too old, or is no CUDA build and CUDA was asked for.
    """
    return Report(build_together(_extensions(names, device, tuple(archs), portable)))


def build_missing(extensions: Iterable[Extension]) -> None:
    """Builds the libraries that loading would have to build, see `build_together`."""
    if missing := [each for each in extensions if not each.is_built()]:
        build_together(missing)


def build_together(extensions: Sequence[Extension]) -> tuple[Built, ...]:
    """Builds libraries, as many at once as there are processors, and says on stderr how far it is.

    Args:
        extensions: the libraries, at least one.

    Returns:
        What became of each, in their order; one that failed is no error here.
    """
    pool = ThreadPoolExecutor(min(len(extensions), len(os.sched_getaffinity(0))))
    try:
        futures = [pool.submit(_build, each) for each in extensions]
        _show_progress(futures)
    finally:  # after Ctrl-C, which the compilers get too, nothing new begins
        pool.shutdown(cancel_futures=True)
    return tuple(future.result() for future in futures)


def _extensions(
    names: Sequence[str], device: str | None, archs: tuple[str, ...], portable: bool
) -> list[Extension]:
    known = operators()
    for name in names:
        if name not in known:
            raise unknown_name("operator", name, known)
    if device not in (None, *DEVICES):
        raise unknown_name("device", str(device), DEVICES)
    try:
        gencode_flags(archs)
    except BuildError as error:
        raise ValueError(error.problem) from error
    torch = find_torch()
    if device is None:
        device = "cpu" if torch.cuda is None else "all"
    if device != "cpu" and torch.cuda is None:
        raise BuildError(f"expected a CUDA build of torch, got {torch.version}", CUDA_TORCH_REMEDY)
    devices = ("cpu", "cuda") if device == "all" else (device,)
    found = [extension(name, each) for name in names or known for each in devices]
    if not names:
        found += [probe.extension(each) for each in devices]
    return [
        dataclasses.replace(each, native=each.native and not portable, archs=archs if each.cuda else ())
        for each in found
    ]


def _build(wanted: Extension) -> Built:
    began = time.monotonic()
    try:
        cached = cache.locate(wanted.library_path().name) is not None
        path = wanted.build(quiet=True)
    except BuildError as error:
        return Built(wanted.name, "failed", time.monotonic() - began, error=str(error))
    return Built(wanted.name, "cached" if cached else "built", time.monotonic() - began, str(path))


def _show_progress(futures: Sequence[Future[Built]]) -> None:
    began, waiting = time.monotonic(), set(futures)
    while waiting:
        done, waiting = wait(waiting, _SILENT_SECONDS, FIRST_COMPLETED)
        lines = [f"{each.name} {each.outcome} ({each.seconds:.1f} s)" for each in (f.result() for f in done)]
        for line in lines or [f"compiling, {time.monotonic() - began:.0f} s so far"]:
            count = len(futures) - len(waiting)
            print(f"kernels: [{count}/{len(futures)}] {line}", file=sys.stderr, flush=True)
