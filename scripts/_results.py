"""Result files of what the kernels are measured by: one benchmark's, and the report of a machine with a GPU.

A result says what it was measured with: date, machine, versions, and a digest of the sources measured. It
holds details, as its benchmark likes, and ``figures``, a flat map from name to number. A report is made of
parts, each a result measured by itself, and its ``figures`` are those of all its parts.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from _machine import gpu, machine, part_digest, processor_of

from kernels.files import write_text
from kernels.names import unknown_name
from tetris.devices import check_gpu
from tetris.versions import versions

DEVICES = ("auto", "cpu", "cuda")
DESCRIBED_PARTS = ("time_to_quality", "env", "sampling", "operators")
"""Parts of the CPU's result file that say themselves what they were measured with, and of which sources."""


def settle_device(requested: str) -> str:
    """Return ``"cuda"`` or ``"cpu"``; ``auto`` takes a GPU where there is one.

    Raises:
        ValueError: If it is unknown, or torch finds no GPU.
    """
    if requested not in DEVICES:
        raise unknown_name("device", requested, DEVICES)
    if requested == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if requested == "cuda":
        check_gpu("device cuda", "--device cpu")
    return requested


def describe(
    benchmark: str,
    device: str,
    operators: Sequence[str] = (),
    *,
    engine: bool = False,
    environments: bool = False,
    splitting: bool = False,
    beside: bool = False,
) -> dict[str, Any]:
    """Return what a result holds for, as plain values for JSON.

    Args:
        benchmark: Its name.
        device: ``"cuda"`` or ``"cpu"``.
        operators: The folders under kernels/ whose sources were measured.
        engine: Whether the Tetris engine was.
        environments: Whether the vector environments were.
        splitting: Whether importance splitting was. On a CPU it has no sources of its own.
        beside: Whether what plays on the CPU was measured, too, beside the GPU.

    Raises:
        ValueError: If an operator is unknown.
    """
    measured = {"device": device, "operators": list(operators), "engine": engine}
    if environments:
        measured["environments"] = True
    if device == "cuda":
        measured |= {"splitting": True} if splitting else {}
        measured |= {"beside": True} if beside else {}
    return {
        "benchmark": benchmark,
        **measured,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine() | (gpu() if device == "cuda" else {}),
        "versions": versions(),
        "sources": part_digest(measured),
    }


def read_result(path: Path, benchmark: str) -> dict[str, Any]:
    """Read a result of a benchmark: its own file, or the part of a report.

    Raises:
        OSError: If it cannot be read.
        ValueError: If there is none in it.
    """
    result = _read_json(path)
    if isinstance(result, dict) and isinstance(result.get("parts"), dict):
        result = result["parts"].get(benchmark)
    if not isinstance(result, dict) or result.get("benchmark") != benchmark:
        raise ValueError(f"{path}: expected a result of {benchmark}, found none")
    missing = [key for key in ("device", "machine", "versions", "figures") if key not in result]
    if missing:
        raise ValueError(f"{path}: expected a whole result, found none with {', '.join(missing)}")
    return result


def read_report(path: Path, *, of_parts: bool = True) -> dict[str, Any]:
    """Read a report that results are put into.

    Args:
        path: Its file.
        of_parts: Whether it is made of parts, as `merged` makes it; that of scripts/cpu_report.py is not.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is none.
    """
    report = _read_json(path)
    parts = report.get("parts") if isinstance(report, dict) else None
    measured = parts.values() if isinstance(parts, dict) else ()
    if isinstance(parts, dict) != of_parts or not all(map(_is_described, [report, *measured])):
        kind = "a report of parts" if of_parts else "a report of scripts/cpu_report.py"
        raise ValueError(f"{path}: expected {kind}, found none")
    result: dict[str, Any] = report
    return result


def open_report(path: Path, device: str) -> dict[str, Any]:
    """Return the report of parts that this machine's go into, as it is so far: without a file an empty one.

    Args:
        path: Its file.
        device: ``"cuda"`` or ``"cpu"``.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is none, or was measured on another GPU, or processor where there is none.
    """
    if not path.is_file():
        return {}
    report = read_report(path)
    here = _machine_name(machine() | (gpu() if device == "cuda" else {}))
    for part in report["parts"].values():
        if (name := _machine_name(part["machine"])) != here:
            raise ValueError(
                f"{path}: expected a report of {here}, found one of {name}; name another with --out"
            )
    return report


def _machine_name(machine: Mapping[str, Any]) -> str:
    """Return what a result was measured on: its GPU, or its processor where there is none."""
    return str(machine.get("gpu") or processor_of(machine))


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: expected a result file, got {error}") from error


def _is_described(result: Any) -> bool:
    needed = {"date", "machine", "versions", "sources", "figures"}
    return isinstance(result, dict) and needed <= set(result) and isinstance(result["machine"], dict)


def merged(report: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a report with parts put in, or put in again.

    Args:
        report: The report so far; empty for a new one.
        parts: Results by the name of the part.

    Raises:
        ValueError: If a part was measured on another GPU than the report's, or on another processor where
            there is none.
    """
    together: dict[str, Any] = {**report.get("parts", {}), **parts}
    names = sorted({_machine_name(part["machine"]) for part in together.values()})
    if len(names) > 1:
        raise ValueError(f"expected a report of one GPU or processor, got parts of {' and '.join(names)}")
    newest = max(together.values(), key=lambda part: str(part["date"]))
    return {
        "date": newest["date"],
        "machine": newest["machine"],
        "versions": newest["versions"],
        "sources": {name: part["sources"] for name, part in together.items()},
        "figures": {name: value for part in together.values() for name, value in part["figures"].items()},
        "parts": together,
    }


def stale_parts(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names of the parts that were measured with other sources than those that are here."""
    return [name for name, part in parts.items() if part["sources"] != part_digest(part)]


def write_json(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result, whole or not at all.

    Raises:
        OSError: If it cannot be written.
    """
    write_text(path, json.dumps(result, indent=1) + "\n")
