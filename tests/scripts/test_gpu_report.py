"""scripts/gpu_report.py: its parts, its file, and what it makes of the sanitizer's words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_report
import pytest
import torch
from _sanitizer import count_tests, run_tool, split_records

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
========= ERROR SUMMARY: 2 errors
"""


def part(name: str, **figures: float) -> dict[str, Any]:
    return {
        "benchmark": name,
        "date": "2026-01-01",
        "machine": {"gpu": "NVIDIA H200"},
        "versions": {},
        "operators": [],
        "sources": "0",
        "figures": figures,
    }


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[Path], dict[str, Any]]]:
    """A machine with a GPU, on which every part is measured at once."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    made = {name: lambda folder, name=name: part(name, **{f"{name}.x": 1.0}) for name in gpu_report.PARTS}
    monkeypatch.setattr(gpu_report, "PARTS", made)
    return made


@pytest.mark.usefixtures("parts")
def test_all_parts_go_into_one_file(script: Script, tmp_path: Path) -> None:
    ended = script("gpu_report", "--out", tmp_path / "h200.json")
    assert ended.status == 0, ended.err
    report = json.loads((tmp_path / "h200.json").read_text())
    assert list(report["parts"]) == ["tests", "sampling", "operators", "memcheck", "racecheck", "initcheck"]
    assert set(report["figures"]) == {f"{name}.x" for name in report["parts"]}


def test_a_part_that_fails_is_told_and_leaves_the_file_and_the_others(
    script: Script, parts: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "h200.json"
    assert script("gpu_report", "--out", out).status == 0

    def fail(folder: Path) -> dict[str, Any]:
        raise RuntimeError("two tests failed")

    parts["tests"] = fail
    parts["sampling"] = lambda folder: part("sampling", **{"sampling.x": 2.0})
    ended = script("gpu_report", "--out", out, "--part", "tests", "--part", "sampling")
    assert ended.status == 1
    assert "tests failed: two tests failed" in ended.err
    figures = json.loads(out.read_text())["figures"]
    assert (figures["tests.x"], figures["sampling.x"]) == (1.0, 2.0)


def test_without_a_gpu_it_says_so_in_one_line(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ended = script("gpu_report")
    assert ended.status == 2
    assert "expected a GPU for a report of a GPU" in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("NVIDIA H200", "h200.json"),
        ("NVIDIA GeForce RTX 3070", "rtx-3070.json"),
        ("Tesla T4", "tesla-t4.json"),
    ],
)
def test_the_file_is_named_for_the_gpu(monkeypatch: pytest.MonkeyPatch, name: str, file: str) -> None:
    monkeypatch.setattr(gpu_report, "gpu", lambda: {"gpu": name})
    assert gpu_report.result_path().name == file


def test_the_sanitizers_records_are_told_apart_by_whose_kernel_it_is() -> None:
    ours, others = split_records(LOG)
    assert [record.splitlines()[0] for record in ours] == ["Invalid __global__ write of size 4 bytes"]
    assert [record.splitlines()[0] for record in others] == [
        "Uninitialized __global__ memory read of size 4 bytes"
    ]


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("91 passed, 3 skipped, 800 deselected in 12.3s", (91, 0)),
        ("2 failed, 89 passed in 12.3s", (89, 2)),
        ("89 passed, 1 error in 3s", (89, 1)),
        ("no tests ran in 0.1s", (0, 0)),
    ],
)
def test_pytests_last_line_is_understood(line: str, counts: tuple[int, int]) -> None:
    assert count_tests(line) == counts


@pytest.mark.parametrize(
    ("program", "counts"),
    [
        ('echo "3 passed in 1s"', (3, 0)),
        ('echo "1 failed, 2 passed in 1s"; exit 1', (2, 1)),
        ('echo "5 deselected in 1s"; exit 5', (0, 0)),
        ("kill -SEGV $$", (0, 1)),
        ('echo "3 passed in 1s"; exit 3', (3, 1)),
    ],
)
def test_a_crash_under_the_sanitizer_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, counts: tuple[int, int]
) -> None:
    (tmp_path / "compute-sanitizer").write_text(f"#!/bin/sh\n{program}\n")
    (tmp_path / "compute-sanitizer").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = run_tool("memcheck", tmp_path / "log", Path("test_nothing.py"), 10.0)
    assert (found.passed, found.failed) == counts
