"""Result files: ``{commit, dirty, date, command, machine, versions, figures, data}``.

``figures`` is a flat map from name to number, ``data`` holds the details as each measurement likes. A file is
written by the command that measured, and by nothing else.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from kernels.support.cores import usable_cores
from kernels.support.files import write_text
from measure import ROOT
from tetris.training import run_folder

RESULTS = ROOT / "benchmarks" / "results"
COMMIT = "CEM_TETRIS_COMMIT"
"""Environment variable with the commit that is measured, ``+`` where files differ, for a copy without git."""

_VECTORS = {
    "AVX512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vpopcntdq"},
    "AVX2": {"avx2"},
    "SSE4": {"sse4_1"},
}
_SMI_FIELDS = ("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit")


class Measured(NamedTuple):
    """What a measurement returns."""

    figures: Mapping[str, float]  # numbers by name
    data: Mapping[str, Any]  # details, as plain values; "ranges" has least and most of figures
    series: Mapping[str, Iterable[Mapping[str, Any]]] = {}  # records by the end of their file's name


def write_result(path: Path, found: Measured, device: str, at: tuple[str | None, bool]) -> None:
    """Write a result and its series; ``at`` is what `commit` returned before it was measured."""
    for ending, records in found.series.items():
        text = "".join(json.dumps(record) + "\n" for record in records)
        write_text(path.with_name(f"{path.stem}{ending}.jsonl"), text)
    sha, dirty = at
    result = {
        "commit": sha,
        "dirty": dirty,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": _command(),
        "machine": machine(device),
        "versions": {**run_folder.versions(), **found.data.get("versions", {})},
        "figures": dict(found.figures),
        "data": dict(found.data),
    }
    write_text(path, json.dumps(result, indent=1) + "\n")


def commit() -> tuple[str | None, bool]:
    """Return the commit of this checkout or of `COMMIT`, if any, and whether files differ from it."""
    found = os.environ.get(COMMIT) or run_folder.commit()
    return found.rstrip("+") or None, found.endswith("+") or not found


def _command() -> str:
    """Return the command that runs, without ``--json``; paths from the root, of those elsewhere the name."""
    words = list(sys.argv)
    while "--json" in words[:-1]:
        place = words.index("--json")
        del words[place : place + 2]
    for place, path in enumerate(map(Path, words)):
        if path.is_absolute():
            words[place] = str(path.relative_to(ROOT)) if ROOT in path.parents else path.name
    return shlex.join(["python", *words])


def machine(device: str) -> dict[str, Any]:
    """Return the processor, the vectors the engine is compiled for, cores, threads, load, and a GPU."""
    said = run_folder.processor()
    flags = set(said.get("flags", "").split())
    here = {
        "processor": said["model name"],
        "vectors": next((name for name, needed in _VECTORS.items() if needed <= flags), "no vectors"),
        "architecture": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "load_average": os.getloadavg()[0],
    }
    if device != "cuda":
        return here
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    query = ["nvidia-smi", f"--query-gpu={','.join(_SMI_FIELDS)}", f"--id=GPU-{gpu.uuid}"]
    query.append("--format=csv,noheader")
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
        values = answer.strip().split(", ")
    except (OSError, subprocess.SubprocessError):
        values = []
    return here | {
        "gpu": gpu.name,
        "gpu_memory_gib": round(gpu.total_memory / 2**30, 1),
        "multiprocessors": gpu.multi_processor_count,
        "cuda": str(torch.version.cuda),
        "nvidia_smi": dict(zip(_SMI_FIELDS, values, strict=False)),
    }


def machine_name(device: str) -> str:
    """Return what the results of this machine are filed under: ``h200``, ``epyc-2core``."""
    here = machine(device)
    if "gpu" in here:
        words = re.findall(r"[a-z0-9]+", str(here["gpu"]).lower())
        return "-".join(word for word in words if word not in ("nvidia", "geforce"))
    known = re.search(r"epyc|xeon|ryzen|core|threadripper", here["processor"].lower())
    return f"{known[0] if known else here['architecture']}-{here['cores']}core"
