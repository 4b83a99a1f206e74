"""``python -m kernels build``: what it builds, what it says, and its use on a machine without a
compiler."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import kernels
from kernels.__main__ import main
from kernels.ops import build, library
from kernels.ops.cases import CASES, choose

PROJECT = Path(kernels.__file__).parents[1]
ADD = """
import torch
from kernels.ops.elementwise.op import vector_add
print(vector_add(torch.ones(2), torch.ones(2)).tolist())
"""


@pytest.fixture
def tiny(cache_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two small operators in the place of the package's own; returns the folder of the
    first."""
    for name in ("one", "two"):
        (tmp_path / "ops" / name).mkdir(parents=True)
        (tmp_path / "ops" / "op.cpp").write_text('#include "op.h"\n')
        (tmp_path / "ops" / name / "op.h").write_text(f"int {name}() {{ return 1; }}\n")
    monkeypatch.setattr(library, "_HERE", tmp_path / "ops")
    monkeypatch.setattr(build, "FAMILIES", ("one", "two"))
    return tmp_path / "ops" / "one"


def test_all_operators_are_built_and_then_found(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", "one", "two", "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    first, second = out.splitlines()[:2]
    assert first.split()[:2] == ["built", "one"]
    assert second.split()[:2] == ["built", "two"]
    assert Path(first.split()[-1]).is_file()
    assert "kernels: two built in " in err

    assert main(["build", "--device", "cpu", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["works"] is True
    assert [(each["name"], each["result"]) for each in report["outcomes"]] == [
        ("one", "cached"),
        ("two", "cached"),
    ]


def test_what_cannot_be_built_is_refused_at_once(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["build", "three"])
    assert "expected an operator among one, two; got 'three'" in capsys.readouterr().err
    assert main(["build", "--arch", "sm_90"]) == 1
    assert re.search(
        r"expected architectures such as 9\.0, .* got 'sm_90'", capsys.readouterr().err
    )


def test_one_failure_does_not_stop_the_others(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tiny / "op.h").write_text("no C++\n")

    assert main(["build", "one", "two", "--device", "cpu"]) == 1
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if " s  " in line] == [
        "FAILED",
        "built",
    ]
    assert "the compiler failed" in out


def test_architectures_reach_the_cuda_side_alone(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")

    cpu, cuda = build.choose_libraries(["one"], "all", ("8.0", "9.0+PTX"), portable=True)
    assert (cpu.archs, cpu.native) == ((), False)
    assert (cuda.name, cuda.archs) == ("one_cuda", ("8.0", "9.0+PTX"))


def test_without_a_gpu_the_cpu_side_is_built_and_cuda_is_absent_unless_it_was_asked_for(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)

    assert main(["build", "one"]) == 0
    words = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[:2]]
    assert words == [["built", "one"], ["absent", "one_cuda"]]
    assert main(["build", "one", "--device", "all"]) == 1


def test_build_and_check_take_the_same_names() -> None:
    assert [
        each.name for each in build.choose_libraries(["sigmoid"], "cpu", (), portable=False)
    ] == ["elementwise"]
    assert choose(["elementwise"], sorted(CASES)) == [
        "elementwise_mult",
        "sigmoid",
        "vector_add",
    ]


def test_a_machine_without_a_compiler_uses_what_was_built_ahead(
    cache_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["build", "elementwise", "--device", "cpu", "--portable"]) == 0
    for lock in cache_folder.glob("*.lock"):
        lock.unlink()
    before = sorted(cache_folder.iterdir())

    environment = {name: value for name, value in os.environ.items() if name != "CXX"}
    result = subprocess.run(
        [sys.executable, "-c", ADD],
        cwd=PROJECT,
        env={**environment, "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.stdout, result.stderr) == ("[2.0, 2.0]\n", "")
    assert sorted(cache_folder.iterdir()) == before

    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    assert main(["doctor"]) == 0
    assert "absent   compiler" in capsys.readouterr().out


def test_portable_libraries_are_for_any_processor_and_architectures_for_cuda_alone() -> None:
    for portable in (False, True):
        cpu, cuda = build.choose_libraries(["normal"], "all", ("9.0",), portable=portable)
        assert (cpu.native, cpu.archs, cuda.archs) == (not portable, (), ("9.0",))
