"""Run the GPU tests, plainly or under a tool of NVIDIA's compute-sanitizer, and count what it finds.

python scripts/measure sanitizers tests
python scripts/measure sanitizers memcheck --json memcheck.json

Only records in kernels of this project count.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

from kernels.loader.cuda import find_nvcc
from measure.cli import choice, measurement
from measure.engines import GOOD, build_engines
from measure.processes import environment, python
from measure.provenance import ROOT, Measured
from tetris.commands.command_line import one_line_errors

TESTS, TOOLS = "tests", ("memcheck", "racecheck", "initcheck")
SANITIZED = ("tests/kernels", "tests/cem", "tests/tetris")
NAMESPACE = "tetris::"  # what the names of this project's kernels hold
TIMEOUT_S = 900  # the most that a file of tests may take under a tool: hosts differ by a factor of two

# Races are looked for in shared memory, which is a kernel's own; the other tools have to see who writes what.
FILTERS = {"racecheck": ("--kernel-name=kns=tetris",)}

PYTEST = ("-m", "pytest", "-n", "0", "-p", "no:cacheprovider")
MARKED = "cuda and not heavy and not timing"
LEFT_OUT = "not compile"  # it launches kernels that are not ours
# A capture needs torch's caching allocator, which is off where bounds or contents of memory are looked at.
_LEFT_OUT_UNCACHED = f"{LEFT_OUT} and not (graph or captured or replay or python_blocks)"
# cuBLAS computes float16 of this size through the tensor memory accelerator, whose writes initcheck does not
# see; racecheck breaks such kernels where it is told to leave them alone.
_LARGE_HALF = "((300x80x80 or test_autocast_does_not_reach_in) and float16)"
# A decision of these tests' many games takes racecheck more than a second, and what it keeps of games that
# look ahead for long exceeds 128 GB; others play for a few decisions.
_MANY_DECISIONS = (
    "((test_rollouts_cuda and (20000 or one_candidate)) or (test_it_looks_ahead_as_the_cpu_does and 40)"
    " or test_a_gpu_finds_what_the_cpu_does)"
)
SELECTED = {
    "memcheck": _LEFT_OUT_UNCACHED,
    "racecheck": f"{LEFT_OUT} and not {_LARGE_HALF} and not {_MANY_DECISIONS}",
    "initcheck": f"{_LEFT_OUT_UNCACHED} and not {_LARGE_HALF}",
}

_AT_ONCE = 5  # much of it is work on the host, and processes share the GPU one after the other
_NO_TESTS, _TIMED_OUT = 5, (124, 137)  # exit codes of pytest where none is selected, and of timeout
_MARK = "========="
_RECORD = re.compile(rf"{_MARK} (Invalid|Uninitialized|Error:|Warning:|Misaligned|Program hit|Leaked)")


def find_sanitizer() -> str:
    """Return the program: that on PATH, else the one beside nvcc."""
    name = "compute-sanitizer"
    found = shutil.which(name) or shutil.which(name, path=str(find_nvcc().path.parent))
    if found is None:
        raise ValueError("expected compute-sanitizer on PATH, found none: install the CUDA toolkit")
    return found


def split_records(log: str) -> tuple[list[str], list[str]]:
    """Return the records of a tool's log: those in this project's kernels, and the others."""
    lines = [line for line in log.splitlines() if line.startswith(_MARK)]
    starts = [number for number, line in enumerate(lines) if _RECORD.match(line)]
    texts = [
        "\n".join(line.removeprefix(_MARK).strip() for line in lines[start:end])
        for start, end in pairwise([*starts, None])
    ]
    return [text for text in texts if NAMESPACE in text], [text for text in texts if NAMESPACE not in text]


def run_pytest(words: Sequence[str], changes: Mapping[str, str]) -> dict[str, Any]:
    """Run tests by a command, in a changed environment; what came of them."""
    own = {**environment(), **changes}
    # Of a process that crashed, the last line then names the test.
    done = subprocess.run([*words, "-v"], env=own, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|errors?)\b", done.stdout)}
    passed = counts.pop("passed", 0)
    crashed = done.returncode not in (0, _NO_TESTS) and not counts  # before it could count
    failures = re.findall(r"^(?:FAILED|ERROR) (.+)$", done.stdout, re.MULTILINE)
    summary = (done.stdout.strip().splitlines() or [""])[-1].strip("= ")
    told = {"passed": passed, "failed": sum(counts.values()) + crashed, "failures": failures}
    return {**told, "summary": summary, "returncode": done.returncode}


def run_file(tool: str, log: Path, test: Path) -> dict[str, Any]:
    """Run the GPU tests of a file under a tool; what it found there."""
    # timeout ends what the tool watches, too: all of its process group.
    sanitizer = ["timeout", "-k5", str(TIMEOUT_S), find_sanitizer(), "--tool", tool, *FILTERS.get(tool, ())]
    pytest = [sys.executable, *PYTEST, "-m", MARKED, "-k", SELECTED[tool], str(test)]
    # Except where races are looked for, each tensor is an allocation of its own.
    uncached = {} if tool == "racecheck" else {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    found = run_pytest([*sanitizer, "--log-file", str(log), *pytest], uncached)
    ours, others = split_records(log.read_text(errors="replace") if log.is_file() else "")
    if found["failed"] and not found["failures"]:
        ended = (
            "not done in time" if found["returncode"] in _TIMED_OUT else f"ended with {found['returncode']}"
        )
        found["failures"] = [f"{test.name}: {ended}", found["summary"], *others[:1]]
    return {**found, "errors": len(ours), "elsewhere": len(others), "records": ours[:5]}


def find_tests() -> list[Path]:
    """Return the files that hold tests for a tool, those with most tests first."""
    collected = python(*PYTEST, "-q", "--collect-only", "-m", MARKED, *SANITIZED)
    counts = Counter(line.split("::")[0] for line in collected.splitlines() if "::" in line)
    return [ROOT / name for name, _ in counts.most_common()]


def run_tool(tool: str) -> dict[str, Any]:
    """Run all files of GPU tests under a tool, a few side by side; what it found."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_AT_ONCE) as pool:
        tests = find_tests()
        found = list(pool.map(lambda test: run_file(tool, Path(folder, f"{test.stem}.log"), test), tests))
    totals = {key: sum(each[key] for each in found) for key in ("errors", "elsewhere", "passed", "failed")}
    texts = {key: [text for each in found for text in each[key]] for key in ("records", "failures")}
    return {"tool": tool, **totals, **texts}


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return what was found; RuntimeError where that is anything."""
    tool, data = arguments.tool, dict[str, Any]()
    if tool != TESTS:
        with one_line_errors():
            find_sanitizer()
    build_engines((name, 10) for name in GOOD)
    began = time.monotonic()
    if tool == TESTS:
        found = run_pytest([sys.executable, *PYTEST, "-m", "cuda", "tests"], {})
        figures = {"tests.cuda.passed": found["passed"], "tests.cuda.failed": found["failed"]}
        data["summary"] = found["summary"]
    else:
        found = data["findings"] = run_tool(tool)
        figures = {f"sanitizer.{tool}.errors": found["errors"], f"sanitizer.{tool}.tests": found["passed"]}
    if found["passed"] == 0 or found.get("errors", 0) + found["failed"]:
        print(json.dumps(found, indent=1), flush=True)
        raise RuntimeError(f"expected {tool} to find nothing and all tests to pass")
    return figures, {"seconds": round(time.monotonic() - began, 1), **data}, {}


main = measurement(measure, __doc__, {"tool": choice("tool", (TESTS, *TOOLS))}, "TOOL", ("cuda",))
