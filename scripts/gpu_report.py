"""Runs on a machine with a GPU what README and docs say of it, and writes benchmarks/results/<gpu>.json.

The GPU tests, the benchmarks of the kernels, and the tests under compute-sanitizer: a quarter of an hour on
an H200. A part alone is measured again with --part; the rest of the file stays.

    python scripts/gpu_report.py && python scripts/render_figures.py
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from _common import Parser, check_gpu, check_writable, one_line_errors, run
from _machine import gpu
from _results import describe, merged, write_json
from _sanitizer import TOOLS, count_tests, find_tests, run_files

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
OPERATORS = ("normal", "sigmoid", "vector_add", "elementwise_mult", "lltm")
SANITIZED = ("tests/kernels", "tests/cem")
SECONDS = {"tests": 200.0, "sampling": 150.0, "operators": 120.0, "sanitizer": 150.0}
"""The most that each part may take."""


def python(*arguments: object, timeout_s: float) -> str:
    """Run Python as a person would in the checkout; what it prints on stdout.

    Raises:
        RuntimeError: If it fails or is not done in time.
    """
    command = [sys.executable, *map(str, arguments)]
    try:
        finished = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"expected {' '.join(command[1:])} to be done in {timeout_s:.0f} s") from error
    if finished.returncode:
        tail = "\n".join(finished.stdout.splitlines()[-30:])
        raise RuntimeError(f"{' '.join(command[1:])} ended with {finished.returncode}:\n{tail}")
    return finished.stdout


def tests(folder: Path) -> dict[str, Any]:
    """Return how the GPU tests went.

    Raises:
        RuntimeError: If one fails.
    """
    began = time.monotonic()
    output = python(
        *("-m", "pytest", "-p", "no:cacheprovider", "-q", "-m", "cuda", "tests"), timeout_s=SECONDS["tests"]
    )
    passed, failed = count_tests(output)
    return {
        **describe("tests", "cuda", OPERATORS),
        "figures": {"tests.cuda.passed": passed, "tests.cuda.failed": failed},
        "seconds": round(time.monotonic() - began, 1),
        "summary": output.splitlines()[-1].strip("= "),
    }


def benchmark(name: str, folder: Path) -> dict[str, Any]:
    """Return what scripts/benchmark_<name>.py measures; its tables go to stdout."""
    target = folder / f"{name}.json"
    script = ROOT / "scripts" / f"benchmark_{name}.py"
    print(python(script, "--device", "cuda", "--output", target, timeout_s=SECONDS[name]), flush=True)
    result: dict[str, Any] = json.loads(target.read_text())
    return result


def sanitizer(tool: str, folder: Path) -> dict[str, Any]:
    """Return what a tool of compute-sanitizer finds when the GPU tests run under it.

    Raises:
        RuntimeError: If it finds something in a kernel of this project, or the tests do not pass under it.
    """
    found = run_files(tool, folder, find_tests(SANITIZED), SECONDS["sanitizer"])
    print(f"{tool}: {found.errors} errors, {found.passed} tests passed in {found.seconds} s", flush=True)
    if found.errors or found.failed or not found.passed:
        raise RuntimeError(f"expected {tool} to find nothing, got {json.dumps(found.to_dict(), indent=1)}")
    return {
        **describe(tool, "cuda", OPERATORS),
        "figures": {f"sanitizer.{tool}.errors": found.errors, f"sanitizer.{tool}.tests": found.passed},
        "findings": found.to_dict(),
    }


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "tests": tests,
    "sampling": lambda folder: benchmark("sampling", folder),
    "operators": lambda folder: benchmark("operators", folder),
    **{tool: partial(sanitizer, tool) for tool in TOOLS},
}


def result_path() -> Path:
    """Return the file of this machine's GPU: ``NVIDIA H200`` writes ``h200.json``."""
    name = str(gpu()["gpu"]).lower().removeprefix("nvidia ").removeprefix("geforce ")
    return RESULTS / (re.sub(r"[^a-z0-9]+", "-", name).strip("-") + ".json")


def main() -> int:
    """Run the parts and write the file; 1 where a part failed."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the result file (default: benchmarks/results/<gpu>.json)")
    parser.add_argument("--part", choices=PARTS, action="append", help="this alone; may be given again")
    arguments = parser.parse_args()
    with one_line_errors():
        check_gpu("a report of a GPU", "scripts/cpu_report.py")
        out = arguments.out or result_path()
        check_writable(out)
        report = json.loads(out.read_text()) if out.is_file() else {}
    failures = 0
    for name in arguments.part or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                report = merged(report, {name: PARTS[name](Path(folder))})
            except (RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
                print(f"{name} failed: {error}", file=sys.stderr, flush=True)
                failures += 1
                continue
        write_json(out, report)
        print(f"wrote {name} to {out}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    run(main)
