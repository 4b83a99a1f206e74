"""Where a run comes from: versions, and hardware, commit and command of each start, in ``starts.jsonl``."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from kernels.version import __version__

_ROOT = Path(__file__).resolve().parents[2]


def versions() -> dict[str, str]:
    """Return the versions of the software by name."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "cem-tetris": __version__,
    }


def start_record(device: str) -> dict[str, str]:
    """Return date, command, commit and hardware of this process; the GPU where the device is ``"cuda"``."""
    return {
        "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC",
        "command": _command(),
        "commit": _commit(),
        "hardware": _hardware(device),
    }


def add_start(path: Path, device: str) -> None:
    """Append the record of a start as a line."""
    with path.open("a") as file:
        file.write(json.dumps(start_record(device)) + "\n")


def _command() -> str:
    words = sys.argv[0].split() if " " in sys.argv[0] else ["python", sys.argv[0]]
    return shlex.join([*words, *sys.argv[1:]])


def _commit() -> str:
    """The commit of a checkout, with a ``+`` where files differ; empty for an installed package."""
    if not (_ROOT / ".git").exists():
        return ""
    try:
        commit, changes = (
            subprocess.run(
                ["git", "-C", str(_ROOT), *words], capture_output=True, text=True, timeout=10, check=True
            ).stdout.strip()
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return commit + "+" * bool(changes)


def _hardware(device: str) -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0))
    gpu = torch.cuda.get_device_name() if device == "cuda" and torch.cuda.is_available() else ""
    return ", ".join(filter(None, (gpu, processor, f"{cores} core{'s'[: cores != 1]}")))
