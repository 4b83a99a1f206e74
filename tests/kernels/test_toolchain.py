"""The search for the compiler, ninja and torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernels import BuildError, CompilerMissingError
from kernels.loader.toolchain import Compiler, find_compiler, find_torch


def write_program(path: Path, text: str) -> Path:
    """Writes a shell script that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_cxx_names_the_compiler_and_may_have_words_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ccache = write_program(tmp_path / "ccache", 'echo "$1 1.0"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", "./ccache my-c++")

    compiler = find_compiler()
    assert compiler == Compiler((str(ccache), "my-c++"), "my-c++ 1.0")
    assert compiler.program == "my-c++"


def test_a_wrong_cxx_is_an_error_though_there_is_another_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(tmp_path / "c++", "echo c++ 1.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")

    with pytest.raises(CompilerMissingError, match=r"expected \$CXX .* got 'no-such-compiler'"):
        find_compiler()


def test_a_compiler_that_does_not_run_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(tmp_path / "c++", "exit 1")
    works = write_program(tmp_path / "g++", "echo g++ 1.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)

    assert find_compiler().command == (str(works),)


def test_a_torch_before_the_stable_abi_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")

    with pytest.raises(BuildError, match=r"expected torch >= 2\.10, got 2\.9\.1\+cpu"):
        find_torch()
