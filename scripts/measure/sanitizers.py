"""Run the GPU tests under a tool of NVIDIA's compute-sanitizer, and count its error records.

python scripts/measure memcheck --json memcheck.json

Only records about this project's kernels count. Records about errors that the driver returns to
the host, such as a lack of memory, do not count.
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
TIMEOUT_S = 900  # For a test file under a tool. Some hosts are half as fast as others.

# racecheck looks for races in the shared memory of a kernel, so it can skip other libraries'
# kernels. The other tools have to see all writes to memory.
FILTERS = {"racecheck": ("--kernel-name=kns=tetris",)}

PYTEST = ("-m", "pytest", "-n", "0", "-p", "no:cacheprovider")
MARKED = "cuda and not heavy and not timing"
LEFT_OUT = "not compile"  # These tests launch kernels of torch.compile.
# Capturing a CUDA graph needs torch's caching allocator, which is off under memcheck and
# initcheck.
_LEFT_OUT_UNCACHED = f"{LEFT_OUT} and not (graph or captured or replay or python_blocks)"
# For half precision of this size cuBLAS uses the tensor memory accelerator. initcheck does not
# see the accelerator's writes, and racecheck breaks such kernels even if it skips them.
_LARGE_HALF = "(300x80x80 and float16)"
# These tests play many games, whose decisions take more than a second each under racecheck. In
# long games with lookahead its records need more than 128 GB. Other tests make few decisions.
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
_AT_ONCE = 5  # The number of processes in parallel. Much of their work is on the host.
_NO_TESTS = 5  # pytest's exit code if it selects no tests.
_RECORD = re.compile(
    r"^========= (?=Invalid|Uninitialized|Error:|Warning:|Misaligned|Program hit|Leaked)",
    re.MULTILINE,
)
_HOST_FRAME = re.compile(r"^=+ +Host Frame: .*$", re.MULTILINE)


def find_sanitizer() -> str:
    """Return the path of compute-sanitizer, which is on PATH or in the folder of nvcc."""
    name = "compute-sanitizer"
    path = shutil.which(name) or shutil.which(name, path=str(find_nvcc().path.parent))
    if path is None:
        raise ValueError(
            "expected compute-sanitizer on PATH, found none: install the CUDA toolkit"
        )
    return path


def run_file(tool: str, log: Path, test: str) -> dict[str, Any]:
    """Run the GPU tests of a file under a tool of compute-sanitizer, and return the findings.

    Args:
        tool: "memcheck", "racecheck" or "initcheck".
        log: The file for the tool's records.
        test: The file of the tests.

    Returns:
        passed, failed: The numbers of tests. A crash or a time-out counts as a failure.
        failures: The lines of pytest that describe the failed tests.
        errors: The number of the tool's records about kernels of this project.
        elsewhere: The number of its records about other kernels.
        records: The first five records about kernels of this project.
    """
    process = _run_tests(tool, log, test)
    result = _read_outcomes(process.stdout)
    # If a crash or a time-out ended pytest, its output names no failed tests.
    has_crashed = process.returncode not in (0, _NO_TESTS) and not result["failures"]
    if has_crashed:
        # The last line names the test, without the "=" that pytest draws around a line.
        last_line = process.stdout.strip().rpartition("\n")[2].strip("= ")
        result["failed"] = max(1, result["failed"])
        result["failures"] = [f"{test} ended with {process.returncode}: {last_line}"]
    return result | _read_records(log)


def _run_tests(tool: str, log: Path, test: str) -> subprocess.CompletedProcess[str]:
    """Run the GPU tests of a file under a tool; the arguments are those of `run_file`."""
    search_path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": search_path}
    if tool != "racecheck":
        # Without torch's caching allocator every tensor is a separate allocation, so the tool
        # knows its bounds.
        environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    # The program `timeout` ends the tool and the tests, since they are in its process group.
    command = ["timeout", "-k5", str(TIMEOUT_S), find_sanitizer(), "--tool", tool]
    command += [*FILTERS.get(tool, ()), "--log-file", str(log)]
    # -m and -k select the GPU tests that can run under the tool. With -v pytest prints the name
    # of a test before it runs the test, so after a crash the last line names the crashed test.
    command += [sys.executable, *PYTEST, "-m", MARKED, "-k", SELECTED[tool], test, "-v"]
    return subprocess.run(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )


def _read_outcomes(output: str) -> dict[str, Any]:
    """Read pytest's output: the numbers of passed and failed tests, and the failures."""
    # The last line has the form "1 failed, 2 passed, 1 error in 3.0s".
    counts = {}
    for number, outcome in re.findall(r"(\d+) (passed|failed|errors?)\b", output):
        counts[outcome] = int(number)
    passed = counts.pop("passed", 0)
    failures = re.findall(r"^(?:FAILED|ERROR) (.+)$", output, re.MULTILINE)
    return {"passed": passed, "failed": sum(counts.values()), "failures": failures}


def _read_records(log: Path) -> dict[str, Any]:
    """Read the log of a tool: return the numbers of errors, and up to five records."""
    text = log.read_text(errors="replace") if log.is_file() else ""
    records = _RECORD.split(text)[1:]  # The first part is the text before the first record.
    # A record about one of our kernels contains our namespace. Remove the lines of the host's
    # stack first: there our code may have launched a kernel of another library.
    ours = [record for record in records if NAMESPACE in _HOST_FRAME.sub("", record)]
    return {
        "errors": len(ours),
        "elsewhere": len(records) - len(ours),
        "records": ours[:5],
    }


def run_tool(tool: str) -> dict[str, Any]:
    """Run all GPU tests under a tool of compute-sanitizer, and return the findings.

    Each test file runs in its own process. A few processes run in parallel.

    Returns:
        tool: The name of the tool.
        errors, elsewhere, passed, failed: The sums over all files, as in `run_file`.
        records, failures: The lists of all files together.
    """
    # List the tests without running them.
    command = [sys.executable, *PYTEST, "-q", "--collect-only", "-m", MARKED, *SANITIZED]
    process = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    # pytest prints the name of every test as "file.py::test".
    test_names = [line for line in process.stdout.splitlines() if "::" in line]
    tests_by_file = Counter(name.split("::")[0] for name in test_names)
    # The files with the most tests start first, so that no long one runs alone at the end.
    files = [file for file, _ in tests_by_file.most_common()]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_AT_ONCE) as pool:
        logs = [Path(folder, f"{number}.log") for number in range(len(files))]
        results = list(pool.map(partial(run_file, tool), logs, files))
    findings: dict[str, Any] = {"tool": tool}
    for key in ("errors", "elsewhere", "passed", "failed"):
        findings[key] = sum(result[key] for result in results)
    for key in ("records", "failures"):  # These are lists.
        findings[key] = list(chain.from_iterable(result[key] for result in results))
    return findings


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Run the GPU tests under a tool of compute-sanitizer, which checks the CUDA kernels.

    The figures are the number of passed tests and the number of errors. The latter is always 0,
    since an error raises an exception.

    Raises:
        RuntimeError: If the tool finds errors, if a test fails, or if no test has passed.
    """
    tool = arguments.tool
    with one_line_errors():
        find_sanitizer()  # It raises an error if the tool is missing, before the long build.
    # Compile the engines of the tests now: under a tool, compiling would take minutes. An
    # engine is compiled for a feature set and a board width, which is 10 in most tests.
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
