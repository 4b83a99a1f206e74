"""What a result was made with: versions, machine and engine, as plain values for JSON."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib import metadata
from pathlib import Path

import numpy as np
import torch

from tetris import native


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


def source_digest() -> str:
    """Return a SHA-256 over what every native engine is compiled from: names and contents of its files."""
    extension = native.extension(("holes",))
    headers = (path for folder in extension.include_dirs for path in folder.glob("*.h"))
    digest = hashlib.sha256()
    for path in sorted({*extension.sources, *headers}, key=lambda path: (path.parent.name, path.name)):
        content = path.read_bytes()
        digest.update(f"{path.parent.name}/{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()
