"""Hardware, commit and command of each start of a run, in ``starts.jsonl``."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from kernels.support.files import read_bytes

_ROOT = Path(__file__).resolve().parents[2]
_MOST_BYTES = 1 << 24


def start_record(device: str) -> dict[str, str]:
    """Return date, command, commit and hardware of this process.

    Args:
        device: The engine of the run; the GPU is told where it is ``"cuda"``.
    """
    return {
        "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC",
        "command": _command(),
        "commit": _commit(),
        "hardware": _hardware(device),
    }


def add_start(path: Path, device: str) -> None:
    """Append the record of a start as a line, after a torn one as a line of its own.

    Raises:
        OSError: If it cannot be written, with the path.
    """
    line = (json.dumps(start_record(device)) + "\n").encode()
    try:
        with path.open("a+b") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            file.write(b"\n" * (file.read() not in (b"", b"\n")) + line)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def read_starts(path: Path) -> list[dict[str, Any]]:
    """Read the records of all starts; none without the file. An incomplete or damaged line is left out.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is too large; the message names it.
    """
    if not path.is_file():
        return []
    try:
        content = read_bytes(path, _MOST_BYTES)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    starts = []
    for line in content.decode(errors="replace").splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            starts.append(record)
    return starts


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
