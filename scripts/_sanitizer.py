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
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kernels import BuildError
from kernels.cuda import find_nvcc

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("memcheck", "racecheck", "initcheck")
NAMESPACES = ("cem_tetris::",)
"""What the names of this project's kernels hold."""

# Instrumented kernels take ten to a hundred times as long; torch.compile launches some that are not ours.
LEFT_OUT = "not compile and not to_the_31"
# A capture needs torch's caching allocator, which is off where bounds or contents of memory are looked at.
_LEFT_OUT_UNCACHED = f"{LEFT_OUT} and not graph and not captured"

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
        seconds: How long it took; None where it was cut off.
        records: The first records in this project's kernels.
    """

    tool: str
    errors: int
    elsewhere: int
    passed: int
    failed: int
    seconds: float
    records: list[str]

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


def command(program: str, tool: str, log: Path, tests: Sequence[str]) -> list[str]:
    """Return the command that runs the GPU tests under a tool."""
    left_out = LEFT_OUT if tool == "racecheck" else _LEFT_OUT_UNCACHED
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-m", "cuda", "-k", left_out]
    return [program, "--tool", tool, "--log-file", str(log), *pytest, *tests]


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


def run_tool(tool: str, log: Path, tests: Sequence[str], timeout_s: float) -> Findings:
    """Run the GPU tests under a tool.

    Args:
        tool: One of `TOOLS`.
        log: The file for what it says.
        tests: Paths of tests.
        timeout_s: When to stop it.

    Raises:
        ValueError: If there is no compute-sanitizer.
        subprocess.TimeoutExpired: If it is not done in time.
    """
    began = time.monotonic()
    with subprocess.Popen(
        command(find_sanitizer(), tool, log, tests),
        env=environment(tool),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # the program that it watches too
            raise
    ours, others = split_records(log.read_text(errors="replace") if log.is_file() else "")
    passed, failed = count_tests(output)
    seconds = time.monotonic() - began
    return Findings(tool, len(ours), len(others), passed, failed, round(seconds, 1), ours[:5])
