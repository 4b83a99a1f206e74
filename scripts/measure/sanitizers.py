"""Run the GPU tests under a tool of NVIDIA's compute-sanitizer, and count its findings.

python scripts/measure memcheck --json memcheck.json

Only records about kernels of this project count, not errors that the driver returned to the
host, such as full memory.
"""

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
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from kernels.loader.cuda import find_nvcc
from measure import ROOT
from measure.provenance import Measured
from measure.work import GOOD_CONTROLLERS, build_engines
from tetris.commands.command_line import one_line_errors

SANITIZED = ("tests/kernels", "tests/cem", "tests/tetris")
NAMESPACE = "tetris::"  # The names of this project's kernels contain it.
TIMEOUT_S = 900  # For a file of tests under a tool; hosts differ by a factor of two.

# Races occur in shared memory within a kernel, so others are left out. The other tools need all
# writes.
FILTERS = {"racecheck": ("--kernel-name=kns=tetris",)}

PYTEST = ("-m", "pytest", "-n", "0", "-p", "no:cacheprovider")
MARKED = "cuda and not heavy and not timing"
LEFT_OUT = "not compile"  # These tests launch kernels of torch.compile.
# A capture needs torch's caching allocator, which is off if bounds or contents of memory are
# checked.
_LEFT_OUT_UNCACHED = f"{LEFT_OUT} and not (graph or captured or replay or python_blocks)"
# cuBLAS computes half precision of this size through the tensor memory accelerator, whose
# writes initcheck does not see; racecheck breaks such kernels even if they are filtered out.
_LARGE_HALF = "(300x80x80 and float16)"
# A decision of the many games of these tests takes racecheck more than a second, and its
# records of long games with lookahead exceed 128 GB. Other tests play a few decisions.
_MANY_DECISIONS = (
    "((test_rollouts_cuda and (20000 or one_candidate))"
    " or (test_games_are_those_of_the_cpu and (PREVIEW or EXPECTIMAX))"
    " or test_a_gpu_finds_what_the_cpu_does)"
)
SELECTED = {
    "memcheck": _LEFT_OUT_UNCACHED,
    "racecheck": f"{LEFT_OUT} and not {_LARGE_HALF} and not {_MANY_DECISIONS}",
    "initcheck": f"{_LEFT_OUT_UNCACHED} and not {_LARGE_HALF}",
}
_AT_ONCE = 5  # Processes in parallel: much of their work is on the host.
_NO_TESTS = 5  # pytest's exit code if it selects no tests.
_RECORD = re.compile(
    r"^========= (?=Invalid|Uninitialized|Error:|Warning:|Misaligned|Program hit|Leaked)",
    re.MULTILINE,
)
_HOST_FRAME = re.compile(r"^=+ +Host Frame: .*$", re.MULTILINE)


def find_sanitizer() -> str:
    """Return the path of the program on PATH, or beside nvcc."""
    name = "compute-sanitizer"
    path = shutil.which(name) or shutil.which(name, path=str(find_nvcc().path.parent))
    if path is None:
        raise ValueError(
            "expected compute-sanitizer on PATH, found none: install the CUDA toolkit"
        )
    return path


def run_file(tool: str, log: Path, test: str) -> dict[str, Any]:
    """Run the GPU tests of a file under a tool of compute-sanitizer; return its findings.

    A crash or a time-out of the tests counts as a failure.

    Args:
        tool: memcheck, racecheck or initcheck.
        log: The file for the tool's records.
        test: The file of tests.

    Returns:
        The numbers of tests passed and failed, and of records about our kernels ("errors") and
        about others ("elsewhere"); the failures, and the first of our records.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if tool != "racecheck":
        # Without torch's caching allocator every tensor is an allocation of its own, whose
        # bounds the tool knows.
        environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    # The program `timeout` ends all processes of the group: the tool and the tests.
    command = ["timeout", "-k5", str(TIMEOUT_S), find_sanitizer(), "--tool", tool]
    command += [*FILTERS.get(tool, ()), "--log-file", str(log)]
    # With -v the last line of a process that crashed names the test.
    command += [sys.executable, *PYTEST, "-m", MARKED, "-k", SELECTED[tool], test, "-v"]
    process = subprocess.run(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    result = _read_outcomes(process.stdout)
    has_crashed = process.returncode not in (0, _NO_TESTS) and not result["failures"]
    if has_crashed:
        last_line = process.stdout.strip().rpartition("\n")[2].strip("= ")
        result["failed"] = max(1, result["failed"])
        result["failures"] = [f"{test} ended with {process.returncode}: {last_line}"]
    text = log.read_text(errors="replace") if log.is_file() else ""
    records = _RECORD.split(text)[1:]  # The text before the first record is no record.
    # A record is about one of our kernels if it has our namespace. Lines about the host have it
    # for kernels of other libraries, too, which our code launches, so they do not count.
    ours = [record for record in records if NAMESPACE in _HOST_FRAME.sub("", record)]
    return result | {
        "errors": len(ours),
        "elsewhere": len(records) - len(ours),
        "records": ours[:5],
    }


def _read_outcomes(output: str) -> dict[str, Any]:
    """Return the numbers of tests passed and failed, and the failures, from pytest's output."""
    # The last line is such as "1 failed, 2 passed, 1 error in 3.0s".
    counts = {}
    for number, outcome in re.findall(r"(\d+) (passed|failed|errors?)\b", output):
        counts[outcome] = int(number)
    passed = counts.pop("passed", 0)
    failures = re.findall(r"^(?:FAILED|ERROR) (.+)$", output, re.MULTILINE)
    return {"passed": passed, "failed": sum(counts.values()), "failures": failures}


def run_tool(tool: str) -> dict[str, Any]:
    """Run all GPU tests under a tool of compute-sanitizer, and return the findings of all.

    Each file of tests runs in a process of its own, a few of them in parallel.

    Returns:
        The name of the tool; the numbers of tests passed and failed, and of records about our
        kernels ("errors") and about others ("elsewhere"); lists of failures and of records.
    """
    command = [sys.executable, *PYTEST, "-q", "--collect-only", "-m", MARKED, *SANITIZED]
    process = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    # pytest prints the name of every test as "file.py::test".
    test_names = [line for line in process.stdout.splitlines() if "::" in line]
    tests_by_file = Counter(name.split("::")[0] for name in test_names)
    # The files with the most tests come first, so that none of them runs alone at the end.
    files = [file for file, _ in tests_by_file.most_common()]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_AT_ONCE) as pool:
        logs = [Path(folder, f"{number}.log") for number in range(len(files))]
        results = list(pool.map(partial(run_file, tool), logs, files))
    findings: dict[str, Any] = {"tool": tool}
    for key in ("errors", "elsewhere", "passed", "failed"):
        findings[key] = sum(result[key] for result in results)
    for key in ("records", "failures"):  # These are lists, which are joined.
        findings[key] = list(chain.from_iterable(result[key] for result in results))
    return findings


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Check the CUDA kernels by a tool of compute-sanitizer, under which the GPU tests run.

    The figures are the number of tests, and of errors, which is 0 if the function returns.

    Raises:
        RuntimeError: If the tool finds errors, if a test fails, or if there are no tests.
    """
    tool = arguments.tool
    with one_line_errors():
        find_sanitizer()  # If it is not installed, end before the engines are built.
    # Compile the engines of the tests beforehand, because under a tool that takes minutes. Most
    # tests play on boards of width 10.
    width = 10
    build_engines((features, width) for features in GOOD_CONTROLLERS)
    start_time = time.monotonic()
    findings = run_tool(tool)
    seconds = round(time.monotonic() - start_time, 1)
    has_errors = findings["errors"] + findings["failed"] > 0
    if has_errors or findings["passed"] == 0:
        print(json.dumps(findings, indent=1), flush=True)
        raise RuntimeError(f"expected {tool} to find nothing and all tests to pass")
    figures = {
        f"sanitizer.{tool}.errors": findings["errors"],
        f"sanitizer.{tool}.tests": findings["passed"],
    }
    return Measured(figures, {"seconds": seconds, "findings": findings})
