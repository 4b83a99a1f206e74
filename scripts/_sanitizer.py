"""Runs the GPU tests under NVIDIA's compute-sanitizer and counts what it finds in this project's kernels."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from kernels import BuildError
from kernels.cuda import find_nvcc

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("memcheck", "racecheck", "initcheck")
NAMESPACES = ("tetris::",)
"""What the names of this project's kernels hold."""

# Races are looked for in shared memory, which is a kernel's own; the other tools have to see who writes what.
FILTERS = {"racecheck": tuple(f"--kernel-name=kns={name.rstrip(':')}" for name in NAMESPACES)}

PYTEST = ("-m", "pytest", "-n", "0", "-p", "no:cacheprovider")
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
_SELECTED = {
    "memcheck": _LEFT_OUT_UNCACHED,
    "racecheck": f"{LEFT_OUT} and not {_LARGE_HALF} and not {_MANY_DECISIONS}",
    "initcheck": f"{_LEFT_OUT_UNCACHED} and not {_LARGE_HALF}",
}

_AT_ONCE = 5
_NO_TESTS = 5  # pytest's exit code where none is selected
_RECORD = re.compile(r"========= (Invalid|Uninitialized|Error:|Warning:|Misaligned|Program hit|Leaked)")


@dataclass(frozen=True)
class Findings:
    """What a tool found.

    Attributes:
        tool: Its name.
        errors: Records in this project's kernels.
        elsewhere: Records in other kernels or calls.
        passed: Tests that passed under it.
        failed: Tests that did not.
        seconds: How long it took.
        records: The first records in this project's kernels.
        failures: The tests that did not pass, as pytest names them, with the reason.
    """

    tool: str
    errors: int
    elsewhere: int
    passed: int
    failed: int
    seconds: float
    records: list[str]
    failures: list[str]

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON."""
        return asdict(self)


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
    pytest = [sys.executable, *PYTEST, "-q", "-m", MARKED, "-k", _SELECTED[tool], str(test)]
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


def name_failures(output: str) -> list[str]:
    """Return the tests that failed or could not run, by pytest's summary."""
    return re.findall(r"^(?:FAILED|ERROR) (.+)$", output, re.MULTILINE)


def run_tool(tool: str, log: Path, test: Path, timeout_s: float) -> Findings:
    """Run the GPU tests of a file under a tool.

    Args:
        tool: One of `TOOLS`.
        log: The file for what it says.
        test: A file of tests.
        timeout_s: When to stop it.

    Raises:
        ValueError: If there is no compute-sanitizer.
        RuntimeError: If it is not done in time.
    """
    began = time.monotonic()
    with subprocess.Popen(
        command(find_sanitizer(), tool, log, test),
        env=environment(tool),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # the program that it watches too
            if isinstance(error, subprocess.TimeoutExpired):
                raise RuntimeError(
                    f"expected {tool} of {test.name} to be done in {timeout_s:.0f} s"
                ) from None
            raise
    ours, others = split_records(log.read_text(errors="replace") if log.is_file() else "")
    passed, failed = count_tests(output)
    if process.returncode not in (0, _NO_TESTS) and failed == 0:
        failed = 1  # it crashed before it could count
    seconds = time.monotonic() - began
    failures = name_failures(output)
    return Findings(tool, len(ours), len(others), passed, failed, round(seconds, 1), ours[:5], failures)


def find_tests(folders: Sequence[str]) -> list[Path]:
    """Return the files that hold tests for a tool, those with most tests first.

    Raises:
        RuntimeError: If pytest cannot collect them.
    """
    collected = subprocess.run(
        [sys.executable, *PYTEST, "-q", "--collect-only", "-m", MARKED, *folders],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if collected.returncode:
        raise RuntimeError(f"expected pytest to collect the tests, got:\n{collected.stdout[-2000:]}")
    counts = Counter(line.split("::")[0] for line in collected.stdout.splitlines() if "::" in line)
    return [ROOT / name for name, _ in counts.most_common()]


def run_files(tool: str, folder: Path, tests: Sequence[Path], timeout_s: float) -> Findings:
    """Run the GPU tests of several files under a tool, a few files side by side.

    Much of it is work on the host, so one at a time is slow; processes share the GPU in turns: so are many.

    Args:
        tool: One of `TOOLS`.
        folder: For what the tool says.
        tests: Files of tests.
        timeout_s: When to stop a file.

    Returns:
        All of it; its seconds are those by the clock.

    Raises:
        ValueError: If there is no compute-sanitizer.
        RuntimeError: If a file is not done in time.
    """
    began = time.monotonic()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        runs = [pool.submit(run_tool, tool, folder / f"{test.stem}.log", test, timeout_s) for test in tests]
        try:
            findings = [run.result() for run in runs]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return Findings(
        tool,
        sum(found.errors for found in findings),
        sum(found.elsewhere for found in findings),
        sum(found.passed for found in findings),
        sum(found.failed for found in findings),
        round(time.monotonic() - began, 1),
        [record for found in findings for record in found.records][:5],
        [failure for found in findings for failure in found.failures],
    )
