"""The search for the compiler, ninja and torch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from kernels import BuildError, CompilerMissingError
from kernels.loader.toolchain import Compiler, find_compiler, find_ninja, find_torch


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
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "ccache my-c++")

    compiler = find_compiler()
    assert compiler == Compiler((str(ccache), "my-c++"), "my-c++ 1.0")
    assert compiler.program == "my-c++"
    assert compiler.options == ()


def test_a_wrong_cxx_is_an_error_though_there_is_another_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(tmp_path / "c++", "echo c++ 1.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")

    with pytest.raises(CompilerMissingError, match=r"expected \$CXX .* got 'no-such-compiler'"):
        find_compiler()


def test_ninja_of_path_serves_where_the_package_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = write_program(tmp_path / "ninja", "echo 1.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_ninja() != on_path

    monkeypatch.setitem(sys.modules, "ninja", None)
    assert find_ninja() == on_path

    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildError, match="pip install ninja"):
        find_ninja()


def test_a_torch_before_the_stable_abi_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")

    with pytest.raises(BuildError, match=r"expected torch >= 2\.10, got 2\.9\.1\+cpu"):
        find_torch()
