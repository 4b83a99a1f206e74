"""Result files: ``{commit, dirty, date, command, machine, versions, figures, data}``.

``figures`` maps names to numbers; ``data`` has the details of the measurement. Only the command
that measures writes a result file.
"""

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

from kernels.support.files import write_text
from kernels.support.system import usable_cores
from measure import ROOT
from tetris.training import run_folder

RESULTS = ROOT / "benchmarks" / "results"
COMMIT = "CEM_TETRIS_COMMIT"
"""Environment variable: the measured commit, followed by ``+`` if files differ from it."""

_VECTORS = {
    "AVX512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vpopcntdq"},
    "AVX2": {"avx2"},
    "SSE4": {"sse4_1"},
}
_SMI_FIELDS = ("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit")


class Measured(NamedTuple):
    """The result of a measurement.

    Attributes:
        figures: Numbers by name.
        data: Details, as values for JSON. "ranges" has the lower and the upper bound of
            figures.
        series: Records of files of their own, by the ending of the file's name.
    """

    figures: Mapping[str, float]
    data: Mapping[str, Any]
    series: Mapping[str, Iterable[Mapping[str, Any]]] = {}


def measured_scores(kind: str, scores: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Return scores of controllers as a result, without the weights of the controllers.

    Args:
        kind: The first part of the figures' names, such as "sz.best.lines_per_game".
        scores: For each controller the lines per game, their 95 % interval ("ci95"), and more.
    """
    names = {name: f"{kind}.{name}.lines_per_game" for name in scores}
    figures = {names[name]: score["lines_per_game"] for name, score in scores.items()}
    ranges = {names[name]: score["ci95"] for name, score in scores.items()}
    # The files of the controllers have the weights.
    details = {
        name: {key: value for key, value in score.items() if key != "weights"}
        for name, score in scores.items()
    }
    return Measured(figures, {"ranges": ranges, "scores": details})


def write_result(
    path: Path, measured: Measured, device: str, commit: tuple[str | None, bool]
) -> None:
    """Write the result of a measurement as JSON, with its commit, date, command and machine.

    A measurement may also have series of records. Each is written to a separate file in the
    same folder, with a record on each line. The file's name is that of the result, followed by
    the key of the series.

    Args:
        path: The file of the result.
        measured: The result.
        device: The device that was measured.
        commit: The commit before the measurement, during which the checkout may change: its
            SHA, and whether files differ from it.
    """
    for ending, records in measured.series.items():
        lines = "".join(json.dumps(record) + "\n" for record in records)
        write_text(path.with_name(f"{path.stem}{ending}.jsonl"), lines)
    sha, is_dirty = commit
    now = datetime.datetime.now(datetime.timezone.utc)
    versions = run_folder.versions() | measured.data.get("versions", {})
    result = {
        "commit": sha,
        "dirty": is_dirty,
        "date": now.isoformat(timespec="seconds"),
        "command": _command(),
        "machine": machine(device),
        "versions": versions,
        "figures": dict(measured.figures),
        "data": dict(measured.data),
    }
    write_text(path, json.dumps(result, indent=1) + "\n")


def commit() -> tuple[str | None, bool]:
    """Return the commit of the checkout, or None, and whether files differ from it.

    The environment variable `COMMIT` takes precedence over git.
    """
    # The text is the SHA, followed by "+" if files differ. It is empty if it is not known.
    text = os.environ.get(COMMIT) or run_folder.commit()
    return text.rstrip("+") or None, text.endswith("+") or not text


def _command() -> str:
    """Return the command of this process without the option ``--json``.

    Paths in the checkout are relative to its root. Of other paths only the name is left.
    """
    words = list(sys.argv)
    while "--json" in words[:-1]:
        index = words.index("--json")
        del words[index : index + 2]  # The option and its value.
    for index, path in enumerate(map(Path, words)):
        if path.is_absolute():
            words[index] = str(path.relative_to(ROOT)) if ROOT in path.parents else path.name
    return shlex.join(["python", *words])


def machine(device: str) -> dict[str, Any]:
    """Return a description of this machine: its processor, system and load, and its GPU.

    "vectors" is the widest set of vector instructions that both the processor and the game
    engine support. The GPU is described only if ``device`` is "cuda". "nvidia_smi" is an empty
    dictionary if the program nvidia-smi fails.
    """
    processor = run_folder.processor()
    flags = set(processor.get("flags", "").split())  # For example "avx2".
    # `_VECTORS` maps sets of instructions to the flags that they need, the widest set first.
    supported = [name for name, required in _VECTORS.items() if required <= flags]
    description = {
        "processor": processor["model name"],
        "vectors": supported[0] if supported else "no vectors",
        "architecture": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "load_average": os.getloadavg()[0],
    }
    if device != "cuda":
        return description
    return description | _describe_gpu()


def _describe_gpu() -> dict[str, Any]:
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "gpu": gpu.name,
        "gpu_memory_gib": round(gpu.total_memory / 2**30, 1),
        "multiprocessors": gpu.multi_processor_count,
        "cuda": str(torch.version.cuda),
        "nvidia_smi": _query_nvidia_smi(gpu.uuid),
    }


def _query_nvidia_smi(uuid: Any) -> dict[str, str]:
    """Return the driver, clocks and power limit of a GPU by the names of `_SMI_FIELDS`.

    The dictionary is empty if the program nvidia-smi is missing or fails.
    """
    command = [
        "nvidia-smi",
        f"--query-gpu={','.join(_SMI_FIELDS)}",
        f"--id=GPU-{uuid}",
        "--format=csv,noheader",
    ]
    try:
        smi = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = smi.stdout.strip().split(", ")
    return dict(zip(_SMI_FIELDS, values, strict=False))


def machine_name(device: str) -> str:
    """Return the name of the folder for this machine's results: ``h200``, ``epyc-2core``."""
    description = machine(device)
    if "gpu" in description:
        words = re.findall(r"[a-z0-9]+", str(description["gpu"]).lower())
        return "-".join(word for word in words if word not in ("nvidia", "geforce"))
    brand = re.search(r"epyc|xeon|ryzen|core|threadripper", description["processor"].lower())
    processor = brand[0] if brand else description["architecture"]
    return f"{processor}-{description['cores']}core"
