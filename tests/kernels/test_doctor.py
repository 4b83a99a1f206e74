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


@no_gpu
def test_what_only_cuda_needs_does_not_stop_the_cpu(no_operator: None) -> None:
    report = doctor.examine("cpu")

    assert not finding(report, "GPU").works
    assert not finding(report, "GPU").needed
    assert report.works


def test_a_torch_that_does_not_import_is_reported(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ImportError("libtorch.so: cannot open shared object file")

    monkeypatch.setattr(doctor, "find_torch", broken)
    report = doctor.examine()

    assert not report.works
    assert finding(report, "torch").found == "ImportError: libtorch.so: cannot open shared object file"
    assert finding(report, "torch").remedy == "run pip install 'torch>=2.10'"


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


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a device among cpu, cuda; got 'tpu'"):
        doctor.examine("tpu")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_cuda_works_where_the_operator_ran_on_the_gpu(
    cache_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--device", "cuda"]) == 0
    assert capsys.readouterr().out.endswith("device cuda: works here\n")


def test_a_distribution_of_the_same_name_is_named(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch, no_operator: None
) -> None:
    assert finding(doctor.examine(), "package").works

    monkeypatch.setattr("importlib.metadata.version", lambda name: {"kernels": "0.4.1"}[name])
    found = finding(doctor.examine(), "package")
    assert not found.works
    assert "the distribution kernels 0.4.1 is installed" in found.found
    assert "pip uninstall kernels" in found.remedy


@pytest.mark.parametrize("package", ["cem", "tetris"])
def test_an_import_names_a_package_that_hides_this_one(package: str, tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").write_text("from kernels.layer import get_kernel\n")
    (tmp_path / "kernels" / "layer.py").write_text("get_kernel = None\n")
    project = Path(doctor.__file__).parents[1]
    answer = subprocess.run(
        [sys.executable, "-c", f"import {package}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(project)])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1].startswith("ImportError: expected this project's package kernels")
    assert "Hugging Face" in answer.stderr
