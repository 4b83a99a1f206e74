"""What a result was made with: versions, machine, GPU and sources, as plain values for JSON."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tetris import native

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
STEP = KERNELS.parent / "tetris" / "envs" / "step"
"""The operator that steps vector environments."""

RESAMPLING = KERNELS.parent / "tetris" / "resampling"
"""The draws of importance splitting on a GPU."""

SPLITTING = KERNELS.parent / "tetris" / "splitting.py"
"""How often they are made, and of what."""

_NATIVE_SUFFIXES = (".cpp", ".cu", ".cuh", ".h")
_SMI_FIELDS = {
    "driver": "driver_version",
    "clock_sm_mhz": "clocks.sm",
    "clock_sm_max_mhz": "clocks.max.sm",
    "clock_memory_mhz": "clocks.mem",
    "power_limit_w": "power.limit",
}


def versions() -> dict[str, str]:
    """Return the versions of what computes."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": np.__version__}
    try:
        found["cem-tetris"] = metadata.version("cem-tetris")
    except metadata.PackageNotFoundError:  # run from a checkout that is only on the path
        found["cem-tetris"] = "unknown"
    return found


def machine() -> dict[str, str | int]:
    """Return the processor, how many of its cores this process may use, and torch's threads."""
    return {
        "processor": processor_name(),
        "architecture": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
    }


def processor_name() -> str:
    """Return what the processor calls itself, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def gpu() -> dict[str, str | int | float]:
    """Return the GPU that torch uses, and what nvidia-smi says of its driver and clocks at this moment."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    found: dict[str, str | int | float] = {
        "gpu": properties.name,
        "gpu_memory_gib": round(properties.total_memory / 2**30, 1),
        "multiprocessors": properties.multi_processor_count,
        "cuda": str(torch.version.cuda),
    }
    command = [
        "nvidia-smi",
        f"--id=GPU-{properties.uuid}",
        f"--query-gpu={','.join(_SMI_FIELDS.values())}",
        "--format=csv,noheader,nounits",
    ]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return found
    values = [value.strip() for value in answer.strip().split(",")]
    return found | {
        name: value if name == "driver" else float(value)
        for name, value in zip(_SMI_FIELDS, values, strict=True)
        if name == "driver" or value.replace(".", "", 1).isdigit()
    }


def commit() -> str | None:
    """Return the commit of this checkout, with a ``+`` where files differ from it; None without git."""
    command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
    try:
        answer = subprocess.run(
            command, cwd=KERNELS.parent, capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def source_digest(*, cuda: bool = False) -> str:
    """Return a SHA-256 over what the C++ engine is compiled from: names and contents of its files.

    Args:
        cuda: Whether those of the CUDA engine count, too.
    """
    engine = native.extension(("holes",))
    files, kinds = set(engine.sources), [".h"]
    if cuda:
        files.update(native.cuda_extension(("holes",)).sources)
        kinds.append(".cuh")
    headers = (path for folder in engine.include_dirs for kind in kinds for path in folder.glob(f"*{kind}"))
    return _digest({*files, *headers})


def part_digest(part: Mapping[str, Any]) -> str:
    """Return the digest of what a part of a report measures, as it is now.

    Args:
        part: Its ``operators``, ``device``, and whether the Tetris ``engine``, the ``environments`` on it and
            importance ``splitting`` on a GPU are measured; older parts do not say.
    """
    found = [kernel_digest(*part["operators"])] if part["operators"] else []
    if part.get("engine", False):
        found.append(source_digest(cuda=part["device"] == "cuda"))
    if part.get("environments", False):
        found.append(_digest(_native_files(STEP)))
    if part.get("splitting", False):
        found.append(_digest([*_native_files(RESAMPLING), SPLITTING]))
    return found[0] if len(found) == 1 else hashlib.sha256(" ".join(found).encode()).hexdigest()


def kernel_digest(*operators: str) -> str:
    """Return a SHA-256 over the files that shape the speed of operators: names and contents.

    Args:
        operators: Their folders under kernels/.

    Raises:
        ValueError: If one is not there.
    """
    shared = [KERNELS / "philox.h", *KERNELS.glob("*.cuh")]
    own = []
    for operator in operators:
        folder = KERNELS / operator
        files = _native_files(folder) if folder.is_dir() else []
        if not files:
            there = sorted(path.parent.name for path in KERNELS.glob("*/op.py"))
            raise ValueError(f"expected an operator out of {', '.join(there)}, got {operator!r}")
        own += [*files, KERNELS / operator / "op.py"]
    return _digest([*shared, *own])


def _native_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.suffix in _NATIVE_SUFFIXES]


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(files, key=lambda path: (path.parent.name, path.name)):
        content = path.read_bytes()
        digest.update(f"{path.parent.name}/{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()
