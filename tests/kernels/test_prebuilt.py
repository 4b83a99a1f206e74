"""Libraries that were built ahead: when one is used that is not exactly what would be built here."""

from __future__ import annotations

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


def test_a_library_for_another_processor_or_of_other_sources_is_refused_with_the_reason(
    cache_folder: Path, write_library: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    extension = write_library(native=True)
    extension.build()
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
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
def put(cache_folder: Path, write_library: Write, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Puts a library for some GPUs into the cache of a machine with nvcc and two GPUs, of 8.0 and of 8.6."""
    torch, nvcc = find_torch()._replace(cuda="13.0"), Nvcc(Path("nvcc"), "13.0.88")
    monkeypatch.setattr(loader, "find_torch", lambda: torch)
    monkeypatch.setattr(loader, "find_nvcc", lambda cuda: nvcc)
    for where in ("architectures", "capabilities"):
        monkeypatch.setattr(loader, where, lambda: ("8.0", "8.6"))

    def put_library(*archs: str) -> Path:
        made = write_library(cuda=True, archs=archs)
        library = made.library_path()
        library.parent.mkdir(mode=0o755, exist_ok=True)
        draft = library.with_name("draft.so")
        draft.write_text("a library")
        cache.install(draft, made._tools(), library)
        return library

    return put_library


def test_a_library_for_other_gpus_serves_where_it_has_code_for_all_of_these(
    put: Put, write_library: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(cuda: str | None) -> Nvcc:
        raise CompilerMissingError("no nvcc found", "install it")

    extension = write_library(cuda=True)
    older = put("7.5+PTX")  # which the driver can compile for newer ones
    assert extension.find() is None
    with monkeypatch.context() as without:
        without.setattr(loader, "find_nvcc", missing)
        assert extension.find() == older
    put("8.6")
    put("8.0+PTX")
    assert extension.find() is None
    both = put("8.0", "8.6", "9.0")
    assert extension.find() == both
    monkeypatch.setattr(loader, "find_nvcc", lambda cuda: Nvcc(Path("nvcc"), "13.0.99"))
    assert extension.find() is None
