"""What a result was made with: versions, machine, GPU and sources, as plain values for JSON."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from kernels.build import Extension
from tetris import native

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
SPLITTING = KERNELS.parent / "tetris" / "splitting.py"
"""When importance splitting on a GPU draws, and from what."""

_VECTORS = {
    "AVX512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vpopcntdq"},
    "AVX2": {"avx2"},
    "SSE4": {"sse4_1"},
}
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_NATIVE_SUFFIXES = (".cpp", ".cu", ".cuh", ".h")
_SMI_FIELDS = {
    "driver": "driver_version",
    "clock_sm_mhz": "clocks.sm",
    "clock_sm_max_mhz": "clocks.max.sm",
    "clock_memory_mhz": "clocks.mem",
    "power_limit_w": "power.limit",
}


def machine() -> dict[str, str | int]:
    """Return the processor, its vectors, how many of its cores this process may use, and torch's threads."""
    return {
        "processor": processor_name(),
        "vectors": vectors(),
        "architecture": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
    }


def processor_name() -> str:
    """Return what the processor calls itself, as far as the system tells."""
    names = _of_processor("model name")
    return names[0] if names else platform.processor() or platform.machine()


def vectors() -> str:
    """Return the vectors that the engine is compiled for here, as fastest_lanes.h chooses them."""
    flags = {flag for line in _of_processor("flags") for flag in line.split()}
    return next((name for name, needed in _VECTORS.items() if needed <= flags), "no vectors")


def _of_processor(name: str) -> list[str]:
    """Return what /proc/cpuinfo says under a name, core by core; nothing where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [line.partition(":")[2].strip() for line in lines if line.startswith(name)]


def processor_of(machine: Mapping[str, Any]) -> str:
    """Return the processor of a `machine` with its vectors, where the result says which."""
    return ", ".join(str(machine[key]) for key in ("processor", "vectors") if machine.get(key))


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


def source_digest(*devices: str) -> str:
    """Return a SHA-256 over what the Tetris engines are compiled from: names and contents of the files.

    What the compiler reads for one of them counts, and no header that only another engine includes.

    Args:
        devices: Whose engines: ``"cpu"`` is the C++ one, ``"cuda"`` the CUDA one.
    """
    extensions = {"cpu": native.extension, "cuda": native.cuda_extension}
    return _digest({file for device in devices for file in compiled_files(extensions[device](("holes",)))})


def part_digest(part: Mapping[str, Any]) -> str:
    """Return the digest of what a part of a report measures, as it is now.

    Args:
        part: Its ``operators``, its ``device``, whether the CPU was measured ``beside`` it, and whether the
            Tetris ``engine``, the vector ``environments`` and importance ``splitting`` on a GPU were; older
            parts do not say.
    """
    devices = {"cuda" if part["device"] == "cuda" else "cpu"}
    if part.get("beside", False):
        devices.add("cpu")
    found = [kernel_digest(*part["operators"])] if part["operators"] else []
    if part.get("engine", False):
        found.append(source_digest(*devices))
    if part.get("environments", False):
        from tetris.envs.native import extension  # imports gymnasium, which nothing else here needs

        steps = [extension(cuda=device == "cuda") for device in devices]
        found.append(_digest({file for step in steps for file in compiled_files(step)}))
    if part.get("splitting", False):
        found.append(_digest({*compiled_files(native.resampling_extension()), SPLITTING}))
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


def compiled_files(extension: Extension) -> set[Path]:
    """Return the sources of a library and all that they include in quotes, directly or not.

    Raises:
        ValueError: If one of these is not there.
    """
    found: set[Path] = set()
    waiting = list(extension.sources)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            folders = (path.parent, *extension.include_dirs)
            for name in _INCLUDE.findall(path.read_text()):
                included = next((folder / name for folder in folders if (folder / name).is_file()), None)
                if included is None:
                    raise ValueError(
                        f"expected {name}, which {path} includes, in {', '.join(map(str, folders))}"
                    )
                waiting.append(included)
    return found


def _native_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.suffix in _NATIVE_SUFFIXES]


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(files, key=lambda path: (path.parent.name, path.name)):
        content = path.read_bytes()
        digest.update(f"{path.parent.name}/{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()
