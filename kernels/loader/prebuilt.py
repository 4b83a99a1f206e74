"""Says whether a library in the cache that is not exactly the one wanted would do on this machine.

Exactly the one wanted is what this machine's tools would build now. A container or a machine without tools
has libraries from elsewhere: built with another compiler, for any processor, for a list of GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.loader import cache

# Which code a GPU runs: CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility".
_TEGRA = {(7, 2), (8, 7)}  # share a major version with other GPUs and run none of their binaries


@dataclass(frozen=True)
class Need:
    """What a library has to agree with.

    Attributes:
        identity: what has to be the same whoever built it: torch, sources, flags, macros.
        tools: the compilers that have to have built it; None where any may have.
        processor: what the machine code may be for besides any processor; None where it has to be for any.
        gpus: the compute capabilities that it has to run on.
        ptx: whether a GPU may be served by code that its driver still has to compile.
    """

    identity: dict[str, Any]
    tools: dict[str, Any] | None
    processor: str | None
    gpus: tuple[tuple[int, int], ...] = ()
    ptx: bool = True

    def objection(self, manifest: dict[str, Any]) -> str:
        """Returns why a library will not do, as the end of a sentence; empty where it will."""
        for part, value in self.identity.items():
            if manifest.get(part) != value:
                return _difference(part, manifest.get(part))
        if self.tools is not None and any(manifest.get(part) != value for part, value in self.tools.items()):
            return "was built with other compilers"
        if manifest.get("processor") not in (None, self.processor):
            return "was built for another processor (build with --portable for any)"
        archs = manifest.get("architectures") or []
        for gpu in self.gpus:
            if not any(runs(arch, gpu, self.ptx) for arch in archs):
                return f"is for GPUs of {' '.join(archs)} and here is one of {gpu[0]}.{gpu[1]}"
        return cache.objection(Path(manifest["library"]))

    def rank(self, manifest: dict[str, Any]) -> tuple[bool, int, str]:
        """Orders the libraries that will do: native code is better, and binaries are; then the newest."""
        archs = manifest.get("architectures") or []
        binary = sum(any(runs(arch, gpu, ptx=False) for arch in archs) for gpu in self.gpus)
        return manifest.get("processor") is not None, binary, str(manifest.get("date"))


def find(need: Need) -> Path | None:
    """Returns the best library in the cache that will do, or None."""
    fit = [manifest for manifest in _of_name(need) if not need.objection(manifest)]
    return Path(max(fit, key=need.rank)["library"]) if fit else None


def objection(need: Need) -> str:
    """Returns why the newest library of the name will not do, as a sentence; empty where there is none."""
    unfit = [manifest for manifest in _of_name(need) if need.objection(manifest)]
    if not unfit:
        return ""
    newest = max(unfit, key=lambda manifest: str(manifest.get("date")))
    return f"{newest['library']} {need.objection(newest)}"


def runs(arch: str, gpu: tuple[int, int], ptx: bool = True) -> bool:
    """Tells whether a GPU runs what was compiled for an architecture.

    Args:
        arch: as in ``TORCH_CUDA_ARCH_LIST``: ``8.0``, ``9.0a``, ``10.0f``, ``8.0+PTX``.
        gpu: the GPU's compute capability.
        ptx: whether code that the driver still has to compile counts.
    """
    match = re.fullmatch(r"(\d+)\.(\d)([af]?)(\+PTX)?", arch)
    if match is None:
        return False
    built = int(match[1]), int(match[2])
    if built == gpu:
        return True
    if match[3] == "a":
        return False
    family = built[0] == gpu[0] and built[1] <= gpu[1]
    if family and not {built, gpu} & _TEGRA:
        return True
    return bool(ptx and match[4] and (family if match[3] else built <= gpu))


def _of_name(need: Need) -> Iterator[dict[str, Any]]:
    name = need.identity["name"]
    for folder in cache.folders():
        for manifest in cache.manifests(folder, f"{name}-*"):
            if manifest.get("name") == name:
                yield manifest


def _difference(part: str, value: Any) -> str:
    if part == "torch":
        return (
            f"was built for torch {value[0]}" if isinstance(value, list) and value else "is for another torch"
        )
    if part == "machine":
        return f"was built for {value}"
    return {
        "files": "was built from other sources",
        "defines": "was built with other macros",
    }.get(part, "was built by another version of this package")
