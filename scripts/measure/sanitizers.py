"""Run the GPU tests under a tool of NVIDIA's compute-sanitizer, and count what it finds.

python scripts/measure memcheck --json memcheck.json

Only records in kernels of this project count: not what the host was told, as that memory is used up.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernels.loader.cuda import find_nvcc
from measure import ROOT
from measure.provenance import Measured
from measure.work import GOOD, build_engines
from tetris.commands.command_line import one_line_errors

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
# cuBLAS computes half precision of this size through the tensor memory accelerator, whose writes initcheck
# does not see; racecheck breaks such kernels where it is told to leave them alone.
_LARGE_HALF = "(300x80x80 and float16)"
# A decision of these tests' many games takes racecheck more than a second, and what it keeps of games that
# look ahead for long exceeds 128 GB; others play for a few decisions.
_MANY_DECISIONS = (
    "((test_rollouts_cuda and (20000 or one_candidate))"
    " or (test_games_are_those_of_the_cpu and (PREVIEW or EXPECTIMAX)) or test_a_gpu_finds_what_the_cpu_does)"
)
SELECTED = {
    "memcheck": _LEFT_OUT_UNCACHED,
    "racecheck": f"{LEFT_OUT} and not {_LARGE_HALF} and not {_MANY_DECISIONS}",
    "initcheck": f"{_LEFT_OUT_UNCACHED} and not {_LARGE_HALF}",
}
_AT_ONCE = 5  # much of it is work on the host, and processes share the GPU one after the other
_NO_TESTS = 5  # exit code of pytest where none is selected
_RECORD = re.compile(
    r"^========= (?=Invalid|Uninitialized|Error:|Warning:|Misaligned|Program hit|Leaked)", re.MULTILINE
)
_HOST_FRAME = re.compile(r"^=+ +Host Frame: .*$", re.MULTILINE)


def find_sanitizer() -> str:
    """Return the program: that on PATH, else the one beside nvcc."""
    name = "compute-sanitizer"
    found = shutil.which(name) or shutil.which(name, path=str(find_nvcc().path.parent))
    if found is None:
        raise ValueError("expected compute-sanitizer on PATH, found none: install the CUDA toolkit")
    return found


def run_file(tool: str, log: Path, test: str) -> dict[str, Any]:
    """Run the GPU tests of a file under a tool; what it found there. A crash or a time-out is a failure."""
    # timeout ends what the tool watches, too: all of its process group.
    sanitizer = ["timeout", "-k5", str(TIMEOUT_S), find_sanitizer(), "--tool", tool, *FILTERS.get(tool, ())]
    pytest = [sys.executable, *PYTEST, "-m", MARKED, "-k", SELECTED[tool], test]
    # Except where races are looked for, each tensor is an allocation of its own.
    uncached = {} if tool == "racecheck" else {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    own = {**os.environ, "PYTHONPATH": str(ROOT), **uncached}
    # Of a process that crashed, the last line then names the test.
    words = [*sanitizer, "--log-file", str(log), *pytest, "-v"]
    done = subprocess.run(words, env=own, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|errors?)\b", done.stdout)}
    passed, failed = counts.pop("passed", 0), sum(counts.values())
    failures = re.findall(r"^(?:FAILED|ERROR) (.+)$", done.stdout, re.MULTILINE)
    if done.returncode not in (0, _NO_TESTS) and not failures:
        summary = (done.stdout.strip().splitlines() or [""])[-1].strip("= ")
        failed, failures = max(1, failed), [f"{test} ended with {done.returncode}: {summary}"]
    records = _RECORD.split(log.read_text(errors="replace") if log.is_file() else "")[1:]
    ours = [record for record in records if NAMESPACE in _HOST_FRAME.sub("", record)]
    found = {"passed": passed, "failed": failed, "failures": failures}
    return {**found, "errors": len(ours), "elsewhere": len(records) - len(ours), "records": ours[:5]}


def run_tool(tool: str) -> dict[str, Any]:
    """Run all files of GPU tests under a tool, a few side by side; what it found."""
    collect = [sys.executable, *PYTEST, "-q", "--collect-only", "-m", MARKED, *SANITIZED]
    collected = subprocess.run(collect, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    tests = Counter(line.split("::")[0] for line in collected.splitlines() if "::" in line)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_AT_ONCE) as pool:
        named = [(name, Path(folder, f"{i}.log")) for i, (name, _) in enumerate(tests.most_common())]
        found = list(pool.map(lambda each: run_file(tool, each[1], each[0]), named))
    kinds: dict[str, Any] = {**dict.fromkeys(("errors", "elsewhere", "passed", "failed"), 0)}
    kinds |= {"records": [], "failures": []}
    return {"tool": tool, **{kind: sum((each[kind] for each in found), none) for kind, none in kinds.items()}}


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return what was found; RuntimeError where that is anything."""
    tool = arguments.tool
    with one_line_errors():
        find_sanitizer()
    build_engines((name, 10) for name in GOOD)
    began = time.monotonic()
    found = run_tool(tool)
    figures = {f"sanitizer.{tool}.errors": found["errors"], f"sanitizer.{tool}.tests": found["passed"]}
    if found["passed"] == 0 or found["errors"] + found["failed"]:
        print(json.dumps(found, indent=1), flush=True)
        raise RuntimeError(f"expected {tool} to find nothing and all tests to pass")
    return Measured(figures, {"seconds": round(time.monotonic() - began, 1), "findings": found})
