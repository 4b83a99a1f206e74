"""What is made of the words of pytest and of compute-sanitizer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measure import provenance, sanitizers
from measure.processes import python
from measure.sanitizers import PYTEST, SANITIZED, SELECTED, run_file, split_records

Script = Callable[..., Any]

LOG = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at void cem_tetris::normal_kernel<float>(float *, long)+0x120
=========     by thread (31,0,0) in block (0,0,0)
=========     Address 0x7f0000000100 is out of bounds
=========
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void at::native::reduce_kernel<512>(T1)+0x10
=========
=========
========= Invalid __shared__ read of size 4 bytes
=========     at void tetris::play_pool<tetris::FeatureList<tetris::Holes>, (int)12>(tetris::Job)+0x80
=========
========= ERROR SUMMARY: 3 errors
"""


def test_the_sanitizers_records_are_told_apart_by_whose_kernel_it_is() -> None:
    ours, others = split_records(LOG)
    assert [record.splitlines()[0] for record in ours] == [
        "Invalid __global__ write of size 4 bytes",
        "Invalid __shared__ read of size 4 bytes",
    ]
    assert [record.splitlines()[0] for record in others] == [
        "Uninitialized __global__ memory read of size 4 bytes"
    ]


@pytest.mark.parametrize(
    ("program", "counts", "failure"),
    [
        ('echo "91 passed, 3 skipped, 800 deselected in 12.3s"', (91, 0), None),
        ('echo "89 passed, 1 error in 3s"; exit 1', (89, 1), "test_nothing.py: ended with 1"),
        (
            'echo "FAILED tests/a.py::b[1] - assert 0"; echo "1 failed, 2 passed in 1s"; exit 1',
            (2, 1),
            "tests/a.py::b[1] - assert 0",
        ),
        ('echo "5 deselected in 1s"; exit 5', (0, 0), None),
        ("kill -SEGV $$", (0, 1), "test_nothing.py: ended with"),
        ('echo "3 passed in 1s"; exit 3', (3, 1), "test_nothing.py: ended with 3"),
        ("exit 124", (0, 1), "test_nothing.py: not done in time"),
    ],
)
def test_a_crash_under_the_sanitizer_is_a_failure(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    counts: tuple[int, int],
    failure: str | None,
) -> None:
    (tmp_path / "compute-sanitizer").write_text(f"#!/bin/sh\n{program}\n")
    (tmp_path / "compute-sanitizer").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = run_file("memcheck", tmp_path / "log", Path("test_nothing.py"))
    assert (found["passed"], found["failed"]) == counts
    assert bool(found["failures"]) == (failure is not None)
    assert not failure or found["failures"][0].startswith(failure)


def test_what_a_tool_leaves_out_are_names_of_tests() -> None:
    collected = python(*PYTEST, "--collect-only", *SANITIZED)
    words = {word for selection in SELECTED.values() for word in re.findall(r"\w+", selection)}
    unknown = {word for word in words - {"and", "or", "not"} if word not in collected}
    assert unknown == set()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, gpu_and_nvcc: None) -> None:
    """A machine with a GPU, on which engines are compiled and the tool is there."""
    monkeypatch.setattr(provenance, "gpu", lambda: {"gpu": "NVIDIA Test"})
    monkeypatch.setattr(sanitizers, "build_engines", list)
    monkeypatch.setattr(sanitizers, "find_sanitizer", lambda: "compute-sanitizer")
    monkeypatch.setattr(sanitizers, "find_tests", lambda: [Path("a.py"), Path("b.py")])


def found(errors: int) -> Callable[..., dict[str, Any]]:
    numbers = {"errors": errors, "elsewhere": 1, "passed": 3, "failed": 0}
    return lambda tool, log, test: {**numbers, "records": ["Invalid"] * errors, "failures": []}


@pytest.mark.usefixtures("gpu")
def test_findings_of_all_files_are_one_result(
    script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sanitizers, "run_file", found(0))
    ended = script("measure.sanitizers", "memcheck", "--json", tmp_path / "memcheck.json")
    assert ended.status == 0, ended.err
    result = json.loads((tmp_path / "memcheck.json").read_text())
    assert result["figures"] == {"sanitizer.memcheck.errors": 0, "sanitizer.memcheck.tests": 6}
    assert (result["data"]["findings"]["elsewhere"], result["machine"]["gpu"]) == (2, "NVIDIA Test")


@pytest.mark.usefixtures("gpu")
def test_a_finding_is_told_and_no_result(
    script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sanitizers, "run_file", found(1))
    ended = script("measure.sanitizers", "racecheck", "--json", tmp_path / "racecheck.json")
    assert ended.status == 1
    assert "Invalid" in ended.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_it_says_so_in_one_line(script: Script) -> None:
    ended = script("measure.sanitizers", "tests")
    assert ended.status == 2
    assert "expected a GPU for what is measured" in ended.err
    assert len(ended.err.splitlines()) == 1
