"""The doctor: its findings, its remedies and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernels import Extension
from kernels.__main__ import main
from kernels.loader import doctor

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")


def finding(report: doctor.Report, name: str) -> doctor.Finding:
    """Returns the finding of a name."""
    return next(found for found in report.findings if found.name == name)


@pytest.fixture
def no_operator(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spares a test the build of the operator."""
    monkeypatch.setattr(doctor, "_operator", lambda device: "not built")


def write_crash(folder: Path) -> Path:
    """Writes a program that ends like one with a memory fault."""
    path = folder / "python"
    path.write_text("#!/bin/sh\nkill -SEGV $$\n")
    path.chmod(0o755)
    return path


def test_the_cpu_works_where_the_operator_was_built_and_called(
    cache_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 0

    printed = capsys.readouterr().out
    assert "built, loaded and called in" in printed
    assert str(cache_folder) in printed
    assert "probe (doctor)" in printed
    assert printed.endswith("device cpu: works here\n")


def test_json_holds_the_findings_and_what_is_built(
    write_library: Callable[..., Extension], no_operator: None, capsys: pytest.CaptureFixture[str]
) -> None:
    write_library(reason="a test").build()
    assert main(["doctor", "--json"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert report["device"] == "cpu"
    assert report["works"] is True
    names = [found["name"] for found in report["findings"]]
    assert names == [
        *(
            "python",
            "package",
            "torch",
            "compiler",
            "ninja",
            "cache",
            "torch CUDA",
            "nvcc",
            "GPU",
            "operators",
            "probe",
        )
    ]
    assert [(built["name"], built["reason"]) for built in report["built"]] == [("answer", "a test")]


def test_a_missing_compiler_is_a_problem_with_a_remedy(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")

    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "PROBLEM  compiler       no C++ compiler found" in printed
    assert "-> install one" in printed
    assert printed.endswith("device cpu: does not work here\n")


@no_gpu
def test_cuda_does_not_work_without_a_gpu_and_every_problem_has_a_remedy(
    cache_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--device", "cuda"]) == 1
    assert "PROBLEM  GPU" in capsys.readouterr().out

    problems = [found for found in doctor.examine("cuda").findings if not found.works]
    assert problems
    assert all(found.remedy for found in problems)


def test_a_cache_that_cannot_be_written_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CEM_TETRIS_CACHE", str(tmp_path / "file" / "cache"))
    report = doctor.examine()

    assert not report.works
    assert finding(report, "cache").remedy == "set CEM_TETRIS_CACHE to a folder of yours"


def test_an_operator_that_crashes_is_a_problem(
    cache_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing = write_crash(tmp_path)
    monkeypatch.setattr(doctor.sys, "executable", str(crashing))
    report = doctor.examine()

    assert not report.works
    assert finding(report, "probe").found == "the probe ended with status -11"


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_cuda_works_where_the_operator_ran_on_the_gpu(
    cache_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--device", "cuda"]) == 0
    assert capsys.readouterr().out.endswith("device cuda: works here\n")


def test_an_import_names_a_package_that_hides_this_one(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").write_text("from kernels.layer import get_kernel\n")
    (tmp_path / "kernels" / "layer.py").write_text("get_kernel = None\n")
    project = Path(doctor.__file__).parents[1]
    answer = subprocess.run(
        [sys.executable, "-c", "import cem"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(project)])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1].startswith("ImportError: expected this project's package kernels")
    assert "Hugging Face" in answer.stderr
