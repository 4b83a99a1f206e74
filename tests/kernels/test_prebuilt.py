"""Libraries that were built ahead: when one is used that is not exactly what would be built here."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels import CompilerMissingError, Extension
from kernels.loader import cache
from kernels.loader import extension as loader
from kernels.loader.cuda import Nvcc
from kernels.loader.toolchain import find_torch

Write = Callable[..., Extension]
Put = Callable[..., Path]


def remove_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the cache had been copied to a machine without any."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")


def test_without_a_compiler_any_compilers_library_is_used_and_nothing_written(
    cache_folder: Path,
    write_library: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extension = write_library()
    library = extension.build()
    other = tmp_path / "other-c++"
    other.write_text("#!/bin/sh\necho other-c++ 1.0\n")
    other.chmod(0o755)
    monkeypatch.setenv("CXX", str(other))
    assert extension.find() is None

    before = sorted(cache_folder.iterdir())
    remove_compilers(monkeypatch)
    assert extension.find() == library
    assert sorted(cache_folder.iterdir()) == before


def test_a_portable_library_serves_where_a_native_one_is_wanted(
    cache_folder: Path, write_library: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = write_library(native=True)
    library = dataclasses.replace(native, native=False).build()
    assert native.find() is None

    remove_compilers(monkeypatch)
    assert native.find() == library


def test_a_library_for_another_processor_or_of_other_sources_is_refused_with_the_reason(
    cache_folder: Path, write_library: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    extension = write_library(native=True)
    extension.build()
    remove_compilers(monkeypatch)
    why = r"no C\+\+ compiler .*answer-.* is for other sources, another torch or processor: install"
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(loader, "processor", lambda: "another processor")
        with pytest.raises(CompilerMissingError, match=why):
            extension.load()
    with pytest.raises(CompilerMissingError, match=why):
        write_library("return 2;", native=True).load()


def test_a_usual_folder_that_became_read_only_is_still_used(
    write_library: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CEM_TETRIS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    extension = write_library()
    library = extension.build()
    capfd.readouterr()
    monkeypatch.setattr(cache, "_can_write", lambda folder: False)

    assert extension.find() == extension.build() == library
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def cuda_machine(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a CUDA build of torch, nvcc 13.0 and two GPUs, of 8.0 and of 8.6."""
    torch = find_torch()._replace(cuda="13.0")
    nvcc = Nvcc(Path("nvcc"), "13.0.88")
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    monkeypatch.setattr(loader, "find_torch", lambda: torch)
    monkeypatch.setattr(loader, "find_nvcc", lambda cuda: nvcc)
    monkeypatch.setattr(loader, "architectures", lambda: ("8.0", "8.6"))
    monkeypatch.setattr(loader, "capabilities", lambda: ("8.0", "8.6"))


@pytest.fixture
def put(cuda_machine: None, write_library: Write) -> Put:
    """Puts a library for some architectures into the cache, without compiling it."""

    def put_library(*archs: str) -> Path:
        made = write_library(cuda=True, archs=archs)
        library = made.library_path()
        library.parent.mkdir(mode=0o755, exist_ok=True)
        draft = library.with_name("draft.so")
        draft.write_text("a library")
        cache.install(draft, made._tools(), library)
        return library

    return put_library


def test_one_build_for_several_gpus_serves_a_machine_with_some(
    put: Put, write_library: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = put("8.0", "8.6", "9.0")
    assert write_library(cuda=True).find() == library
    monkeypatch.setattr(loader, "find_nvcc", lambda cuda: Nvcc(Path("nvcc"), "13.0.99"))
    assert write_library(cuda=True).find() is None


def test_every_gpu_has_to_be_served(put: Put, write_library: Write) -> None:
    put("8.6")
    put("8.0+PTX")

    assert write_library(cuda=True).find() is None


def test_the_driver_compiles_only_where_there_is_no_nvcc(
    put: Put, write_library: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(cuda: str | None) -> Nvcc:
        raise CompilerMissingError("no nvcc found", "install it")

    older = put("7.5+PTX")
    extension = write_library(cuda=True)
    assert extension.find() is None  # nvcc makes a better one
    monkeypatch.setattr(loader, "find_nvcc", missing)
    assert extension.find() == older
