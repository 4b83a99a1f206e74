"""Run the GPU tests, plainly or under a tool of NVIDIA's compute-sanitizer, and count what it finds.

python scripts/measure/sanitizers.py tests
python scripts/measure/sanitizers.py memcheck --json memcheck.json

Only records in kernels of this project count.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels import BuildError
from kernels.cuda import find_nvcc
from measure.cli import make_parser, measurement, read
from measure.engines import GOOD, build_engines
from measure.processes import python
from measure.provenance import ROOT, write_result
from tetris.commands.command_line import one_line_errors, one_of, run
from tetris.devices import check_gpu

TESTS = "tests"
TOOLS = ("memcheck", "racecheck", "initcheck")
SANITIZED = ("tests/kernels", "tests/cem", "tests/tetris")
NAMESPACES = ("tetris::",)
"""What the names of this project's kernels hold."""

TIMEOUT_S = 150.0
"""The most that a file of tests may take under a tool."""

# Races are looked for in shared memory, which is a kernel's own; the other tools have to see who writes what.
FILTERS = {"racecheck": tuple(f"--kernel-name=kns={name.rstrip(':')}" for name in NAMESPACES)}

PYTEST = ("-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-q")
MARKED = "cuda and not heavy and not timing"
LEFT_OUT = "not compile"  # it launches kernels that are not ours
# A capture needs torch's caching allocator, which is off where bounds or contents of memory are looked at.
_LEFT_OUT_UNCACHED = f"{LEFT_OUT} and not graph and not captured and not python_blocks"
# cuBLAS computes float16 of this size through the tensor memory accelerator. initcheck does not see what that
# writes (torch.sigmoid of a float16 torch.addmm "reads uninitialized memory" too), and racecheck breaks such
# kernels where it is told to leave them alone.
_LARGE_HALF = "(300x80x80 and float16)"
# A decision of these tests' many games, a thread each, takes racecheck more than a second. Which cells of
# shared memory threads share depends on the kernel alone: one test plays as many games for a few decisions,
# another draws streams of importance splitting without playing.
_MANY_DECISIONS = "((test_rollout_cuda and (20000 or one_candidate)) or test_a_gpu_finds_what_the_cpu_does)"
SELECTED = {
    "memcheck": _LEFT_OUT_UNCACHED,
    "racecheck": f"{LEFT_OUT} and not {_LARGE_HALF} and not {_MANY_DECISIONS}",
    "initcheck": f"{_LEFT_OUT_UNCACHED} and not {_LARGE_HALF}",
}

_AT_ONCE = 5  # much of it is work on the host, and processes share the GPU one after the other
_NO_TESTS = 5  # pytest's exit code where none is selected
_RECORD = re.compile(r"========= (Invalid|Uninitialized|Error:|Warning:|Misaligned|Program hit|Leaked)")


def find_sanitizer() -> str:
    """Return the program: that on PATH, else the one beside nvcc.

    Raises:
        ValueError: If there is none.
    """
    found = shutil.which("compute-sanitizer")
    if found is None:
        with contextlib.suppress(BuildError):
            found = shutil.which("compute-sanitizer", path=str(find_nvcc().path.parent))
    if found is None:
        raise ValueError("expected compute-sanitizer on PATH, found none: install the CUDA toolkit")
    return found


def command(program: str, tool: str, log: Path, test: Path) -> list[str]:
    """Return the command that runs the GPU tests of a file under a tool."""
    pytest = [sys.executable, *PYTEST, "-m", MARKED, "-k", SELECTED[tool], str(test)]
    return [program, "--tool", tool, *FILTERS.get(tool, ()), "--log-file", str(log), *pytest]


def environment(tool: str) -> dict[str, str]:
    """Return the environment for a tool: each tensor an allocation of its own, except to find races."""
    uncached = {} if tool == "racecheck" else {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    return {**os.environ, "PYTHONPATH": str(ROOT), **uncached}


def split_records(log: str) -> tuple[list[str], list[str]]:
    """Return the records of a tool's log: those in this project's kernels, and the others."""
    records: list[list[str]] = []
    for line in log.splitlines():
        if _RECORD.match(line):
            records.append([])
        if records and line.startswith("========="):
            records[-1].append(line.removeprefix("=========").strip())
    texts = ["\n".join(record) for record in records]
    ours = [text for text in texts if any(name in text for name in NAMESPACES)]
    return ours, [text for text in texts if text not in ours]


def count_tests(output: str) -> tuple[int, int]:
    """Return how many tests passed, and how many failed or could not run, by pytest's last line."""
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|errors?)\b", output)}
    return counts.get("passed", 0), sum(value for word, value in counts.items() if word != "passed")


def run_file(tool: str, log: Path, test: Path) -> dict[str, Any]:
    """Run the GPU tests of a file under a tool; what it found there."""
    words, own = command(find_sanitizer(), tool, log, test), environment(tool)
    with subprocess.Popen(
        words, env=own, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # the program that it watches too
            if isinstance(error, subprocess.TimeoutExpired):
                raise RuntimeError(
                    f"expected {tool} of {test.name} to be done in {TIMEOUT_S:.0f} s"
                ) from None
            raise
    ours, others = split_records(log.read_text(errors="replace") if log.is_file() else "")
    passed, failed = count_tests(output)
    if process.returncode not in (0, _NO_TESTS) and failed == 0:
        failed = 1  # it crashed before it could count
    failures = re.findall(r"^(?:FAILED|ERROR) (.+)$", output, re.MULTILINE)
    numbers = {"errors": len(ours), "elsewhere": len(others), "passed": passed, "failed": failed}
    return {**numbers, "records": ours[:5], "failures": failures}


def find_tests() -> list[Path]:
    """Return the files that hold tests for a tool, those with most tests first."""
    collected = python(*PYTEST, "--collect-only", "-m", MARKED, *SANITIZED)
    counts = Counter(line.split("::")[0] for line in collected.splitlines() if "::" in line)
    return [ROOT / name for name, _ in counts.most_common()]


def run_tool(tool: str) -> dict[str, Any]:
    """Run all files of GPU tests under a tool, a few side by side; what it found."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_AT_ONCE) as pool:
        logs = Path(folder)
        runs = [pool.submit(run_file, tool, logs / f"{test.stem}.log", test) for test in find_tests()]
        try:
            found = [each.result() for each in runs]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    totals: dict[str, Any] = {"tool": tool}
    for key in ("errors", "elsewhere", "passed", "failed"):
        totals[key] = sum(each[key] for each in found)
    totals["seconds"] = round(time.monotonic() - began, 1)
    totals["records"] = [record for each in found for record in each["records"]][:5]
    totals["failures"] = [failure for each in found for failure in each["failures"]]
    return totals


def run_tests() -> tuple[dict[str, int], dict[str, Any]]:
    """Run the GPU tests without a tool; figures and details."""
    began = time.monotonic()
    words = [sys.executable, *PYTEST, "-m", "cuda", "tests"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    passed, failed = count_tests(done.stdout)
    if done.returncode and not failed:
        failed = 1  # it crashed before it could count
    lines = done.stdout.strip().splitlines()
    data = {"seconds": round(time.monotonic() - began, 1), "summary": lines[-1].strip("= ") if lines else ""}
    return {"tests.cuda.passed": passed, "tests.cuda.failed": failed}, data


@measurement
def main(argv: Sequence[str] | None = None) -> None:
    """Run, print what was found, write the result where nothing was."""
    parser = make_parser(__doc__, "TOOL", ())
    names = (TESTS, *TOOLS)
    parser.add_argument("tool", type=one_of("tool", names), metavar="TOOL", help=", ".join(names))
    arguments, _ = read(parser, argv)
    tool = arguments.tool
    with one_line_errors():
        check_gpu("the GPU tests", "pytest")
        if tool != TESTS:
            find_sanitizer()
    build_engines((name, 10) for name in GOOD)
    if tool == TESTS:
        figures, data = run_tests()
        good = figures["tests.cuda.passed"] > 0 and not figures["tests.cuda.failed"]
    else:
        found = run_tool(tool)
        figures = {f"sanitizer.{tool}.errors": found["errors"], f"sanitizer.{tool}.tests": found["passed"]}
        data, good = {"findings": found}, found["passed"] > 0 and not found["errors"] + found["failed"]
    print(json.dumps({**figures, **data}, indent=1), flush=True)
    if not good:
        raise RuntimeError(f"expected {tool} to find nothing and all tests to pass")
    write_result(arguments.json, figures, data, "cuda")


if __name__ == "__main__":
    run(main)
