"""The doctor: its findings, its remedies and its exit status."""

from __future__ import annotations

import io
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from kernels import BuildError
from kernels.__main__ import main
from kernels.ops import doctor
from kernels.ops.report import Outcome, Report
from kernels.support.files import prepare_streams

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")


def finding(report: Report, name: str) -> Outcome:
    """Return the finding of a name."""
    return next(found for found in report.outcomes if found.name == name)


@pytest.fixture
def no_operator(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spares a test the build of the operator."""
    monkeypatch.setattr(doctor, "_call_operator", lambda device: "not built")


def test_the_cpu_works_where_the_operator_was_built_and_called(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor"]) == 0

    printed = capsys.readouterr().out
    assert "built where needed, loaded and called" in printed
    assert printed.endswith("\nworks\n")


@pytest.mark.skipif(find_spec("ziglang") is not None, reason="its compiler needs no PATH")
def test_a_missing_compiler_is_a_problem_with_a_remedy(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")

    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert re.search(r"FAILED   compiler .* no C\+\+ compiler found .*: install one", printed)
    assert printed.endswith("\ndoes not work\n")


@no_gpu
def test_what_only_cuda_needs_does_not_stop_the_cpu(no_operator: None) -> None:
    for device, result in (("cpu", "absent"), ("cuda", "FAILED")):
        report = doctor.run(device)
        assert finding(report, "GPU").result == result
        assert report.works == (device == "cpu")


def test_a_cache_that_cannot_be_written_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CEM_TETRIS_CACHE", str(tmp_path / "file" / "cache"))
    report = doctor.run("cpu")

    assert not report.works
    assert "set CEM_TETRIS_CACHE to a folder of yours" in finding(report, "cache").note
    # An operator that was built before needs no cache to be written.
    monkeypatch.setattr(doctor, "_call_operator", lambda device: "loaded")
    assert finding(doctor.run("cpu"), "cache").result == "absent"


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_cuda_works_where_the_operator_ran_on_the_gpu(
    cache_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--device", "cuda"]) == 0
    assert capsys.readouterr().out.endswith("\nworks\n")


@pytest.mark.parametrize("package", ["cem", "kernels", "tetris"])
def test_the_doctor_names_a_package_that_hides_one_of_these(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("")
    project = Path(doctor.__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(project)]))
    with pytest.raises(
        BuildError, match=f"expected this project's package {package}, got {tmp_path}"
    ):
        doctor._import_packages()
    monkeypatch.setenv("PYTHONPATH", str(project))
    assert doctor._import_packages() == f"cem, kernels and tetris in {project}"


def test_any_path_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "ü"
    project.symlink_to(Path(doctor.__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", str(project))
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    prepare_streams()
    print(doctor._import_packages())
    sys.stdout.seek(0)
    assert sys.stdout.read().endswith(f"in {tmp_path}/\\xfc\n")


def test_where_the_operator_was_built_ahead_no_compiler_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing() -> str:
        raise RuntimeError("missing")

    for name, answer in {
        "_call_operator": lambda device: "called",
        "_describe_gpus": lambda: "one",
        "_describe_nvcc": missing,
    }.items():
        monkeypatch.setattr(doctor, name, answer)
    monkeypatch.setattr(doctor, "_describe_compiler", missing)
    report = doctor.run("cuda")
    assert report.works
    assert {finding(report, name).result for name in ("compiler", "nvcc")} == {"absent"}
