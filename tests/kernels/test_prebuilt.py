"""Libraries that were built ahead: when one is used that is not exactly what would be built here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kernels.loader
from kernels import BuildError, CompilerMissingError, Extension
from kernels.loader import cache
from kernels.loader.cuda import Nvcc
from kernels.loader.prebuilt import runs
from kernels.loader.toolchain import find_torch

Write = Callable[..., Extension]
Put = Callable[..., Path]


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Takes the compilers away, as if the cache had been copied to a machine without any."""

    def remove() -> None:
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setenv("PATH", "")

    return remove


def test_a_damaged_library_is_not_used_and_named(
    cache_folder: Path, write_library: Write, no_compiler: Callable[[], None]
) -> None:
    extension = write_library()
    library = extension.build()
    library.write_bytes(library.read_bytes()[:4096])
    no_compiler()

    assert extension.find() is None
    with pytest.raises(CompilerMissingError, match=f"{library} is damaged"):
        extension.load()


def test_a_portable_library_serves_where_a_native_one_is_wanted(
    cache_folder: Path, write_library: Write, no_compiler: Callable[[], None]
) -> None:
    native = write_library(native=True)
    library = dataclasses.replace(native, native=False).build()
    assert native.find() is None

    no_compiler()
    assert native.find() == library


def test_a_library_for_another_processor_is_refused_with_the_reason(
    cache_folder: Path,
    write_library: Write,
    no_compiler: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extension = write_library(native=True)
    extension.build()
    no_compiler()
    monkeypatch.setattr(kernels.loader, "processor", lambda: "another processor")

    assert extension.find() is None
    with pytest.raises(
        CompilerMissingError,
        match=r"no C\+\+ compiler .*answer-.* was built for another processor .*: install",
    ):
        extension.load()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"defines": (("SIZE", "3"),)}, "with other macros"),
        ({"flags": ("-funroll-loops",)}, "by another version of this package"),
    ],
)
def test_a_library_of_other_options_is_refused(
    cache_folder: Path,
    write_library: Write,
    no_compiler: Callable[[], None],
    change: dict[str, Any],
    reason: str,
) -> None:
    extension = write_library()
    extension.build()
    no_compiler()

    assert dataclasses.replace(extension, **change).find() is None
    assert reason in dataclasses.replace(extension, **change).objection()


@pytest.mark.parametrize(
    ("arch", "gpu", "binary", "driver"),
    [
        ("8.0", (8, 6), True, True),
        ("8.6", (8, 0), False, False),
        ("8.0+PTX", (9, 0), False, True),
        ("10.0f", (10, 3), True, True),
        ("8.0", (8, 7), False, False),  # a Tegra
    ],
)
def test_which_gpu_runs_what(arch: str, gpu: tuple[int, int], binary: bool, driver: bool) -> None:
    assert (runs(arch, gpu, ptx=False), runs(arch, gpu, ptx=True)) == (binary, driver)


@pytest.fixture
def cuda_machine(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a CUDA build of torch, nvcc 13.0 and two GPUs, of 8.0 and of 8.6."""
    torch = dataclasses.replace(find_torch(), cuda="13.0")
    nvcc = Nvcc(Path("nvcc"), "13.0", "V13.0.88", "PATH")
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    monkeypatch.setattr(kernels.loader, "find_torch", lambda: torch)
    monkeypatch.setattr(kernels.loader, "find_nvcc", lambda cuda: nvcc)
    monkeypatch.setattr(kernels.loader, "architectures", lambda: ("8.0", "8.6"))
    monkeypatch.setattr(kernels.loader, "capabilities", lambda: ((8, 0), (8, 6)))


@pytest.fixture
def no_nvcc(cuda_machine: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Takes nvcc away."""

    def missing(cuda: str | None) -> Nvcc:
        raise CompilerMissingError("no nvcc found", "install it")

    return lambda: monkeypatch.setattr(kernels.loader, "find_nvcc", missing)


@pytest.fixture
def put(cuda_machine: None, write_library: Write) -> Put:
    """Puts a library for some architectures into the cache, without compiling it."""

    def put_library(*archs: str) -> Path:
        made = write_library(cuda=True, archs=archs)
        library = made.library_path()
        library.parent.mkdir(mode=0o755, exist_ok=True)
        draft = library.with_name("draft.so")
        draft.write_text("a library")
        cache.install(draft, {**made._key(), "date": "2026"}, library)
        return library

    return put_library


def test_one_build_for_several_gpus_serves_a_machine_with_some(put: Put, write_library: Write) -> None:
    library = put("8.0", "9.0")

    assert write_library(cuda=True).find() == library


@pytest.mark.parametrize("archs", [("8.6",), ("8.0a", "9.0")])
def test_every_gpu_has_to_be_served(put: Put, write_library: Write, archs: tuple[str, ...]) -> None:
    put(*archs)

    assert write_library(cuda=True).find() is None


def test_the_driver_compiles_only_where_there_is_no_nvcc(
    put: Put, write_library: Write, no_nvcc: Callable[[], None]
) -> None:
    library = put("7.5+PTX")
    assert write_library(cuda=True).find() is None

    no_nvcc()
    assert write_library(cuda=True).find() == library


def test_without_nvcc_a_gpu_that_nothing_serves_is_named(
    put: Put, write_library: Write, no_nvcc: Callable[[], None]
) -> None:
    put("8.6", "9.0")
    no_nvcc()

    with pytest.raises(
        BuildError, match=r"no nvcc found, and .* for GPUs of 8\.6 9\.0 and here is one of 8\.0"
    ):
        write_library(cuda=True).load()
