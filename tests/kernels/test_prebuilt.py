"""The ready libraries of a wheel: which one is taken, and what happens where one is unfit."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from kernels import Extension
from kernels.loader import prebuilt

Write = Callable[..., Extension]
Add = Callable[..., Path]
CPUINFO = "processor\t: 0\nflags\t\t: {}\nbugs\t\t: none\n"
TWICE = Path(__file__).with_name("twice.cpp")


def forget() -> None:
    """Forget what was asked about ready libraries."""
    prebuilt.read_index.cache_clear()
    prebuilt._check.cache_clear()
    prebuilt._rejected.clear()


@pytest.fixture
def ready_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of ready libraries, for a processor with the instruction sets b and a."""
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    monkeypatch.setattr(prebuilt, "FOLDER", folder)
    monkeypatch.setattr(prebuilt, "instruction_sets", lambda: ("b", "a"))
    forget()
    yield folder
    forget()


@pytest.fixture
def add_ready(ready_folder: Path) -> Add:
    """Adds a ready library of an extension to the folder and its index."""
    digests: dict[str, str] = {}

    def add(extension: Extension, name: str, content: bytes = b"a library") -> Path:
        library = ready_folder / f"{extension.ready_stem()}-{name}.so"
        library.write_bytes(content)
        digests[library.name] = hashlib.sha256(content).hexdigest()
        index = {"machine": platform.machine(), "libraries": digests}
        (ready_folder / prebuilt.INDEX).write_text(json.dumps(index))
        forget()
        return library

    return add


@pytest.mark.parametrize(
    ("flags", "sets"),
    [
        (prebuilt._V4, ("x86-64-v4-vpopcntdq", "x86-64-v3", "x86-64-v2")),
        (prebuilt._V4.replace("avx512_vpopcntdq", ""), ("x86-64-v3", "x86-64-v2")),
        (prebuilt._V2, ("x86-64-v2",)),
        ("sse sse2", ()),
    ],
)
def test_a_processor_has_an_instruction_set_if_it_has_all_its_flags(
    flags: str, sets: tuple[str, ...]
) -> None:
    assert prebuilt.choose_x86_sets(CPUINFO.format(flags)) == sets


def test_the_ready_library_is_that_of_the_same_sources_for_the_best_instruction_set(
    cache_folder: Path, write_library: Write, add_ready: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    extension = write_library(native=True)
    lesser = add_ready(extension, "a")
    assert extension.find() == lesser
    best = add_ready(extension, "b")
    add_ready(extension, "c")
    assert extension.find() == best
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert extension.find() == best
    assert write_library("return 2;", native=True).find() is None
    assert write_library(native=True, cflags="-O1").find() is None


def test_a_library_that_was_built_here_is_taken_before_the_ready_one(
    cache_folder: Path, write_library: Write, add_ready: Add
) -> None:
    extension = write_library(native=True)
    built = extension.build()
    add_ready(extension, "b")
    assert extension.find() == built


def test_damaged_and_unloadable_libraries_are_passed_over_with_a_line_each(
    cache_folder: Path,
    write_library: Write,
    add_ready: Add,
    call: Callable[[Path], int],
    capfd: pytest.CaptureFixture[str],
) -> None:
    # A process loads one library of a name.
    extension = dataclasses.replace(write_library(native=True), name="passed_over")
    unloadable = add_ready(extension, "a")
    damaged = add_ready(extension, "b")
    damaged.write_bytes(b"a librarx")
    loaded = extension.load()
    assert loaded.parent == cache_folder
    assert call(loaded) == 42
    first, second, *built = capfd.readouterr().err.splitlines()
    assert first == (
        f"kernels: ignoring the prebuilt library {damaged.name}: "
        "it is damaged, install the wheel again"
    )
    assert f"library {unloadable.name}: {unloadable}: file too short" in second
    assert len(built) == 2


@pytest.mark.parametrize(
    ("index", "line"),
    [
        ('{"machine": "vax", "libraries": {}}', "they are built, vax, got"),
        ('{"machine": "vax"}', "expected an index, got"),
        ("{", "expected an index, got"),
    ],
)
def test_a_wheel_for_another_processor_and_a_damaged_index_are_a_line(
    ready_folder: Path, index: str, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (ready_folder / prebuilt.INDEX).write_text(index)
    assert prebuilt.read_index() == prebuilt.read_index() == {}
    (printed,) = capfd.readouterr().err.splitlines()
    assert line in printed


def test_a_library_that_everybody_can_write_is_passed_over(
    cache_folder: Path, write_library: Write, add_ready: Add
) -> None:
    extension = write_library(native=True)
    add_ready(extension, "b").chmod(0o666)
    assert extension.find() is None


@pytest.mark.slow(first=True)
@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs ziglang")
def test_a_library_of_the_release_computes_and_raises_what_one_built_here_does(
    cache_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import build_wheels

    monkeypatch.setenv("CXX", "")  # restored after compile_all
    source = tmp_path / "released.cpp"
    code = TWICE.read_text().replace("cem_test_twice", "cem_test_released")
    check = 'STD_TORCH_CHECK(x.dim() == 1, "expected one dimension, got ", x.dim());'
    source.write_text(code.replace("Tensor output", f"{check} Tensor output"))
    extension = Extension("released", source, native=True)
    machine = platform.machine()
    folder = build_wheels.compile_all(machine, [extension], tmp_path / "work")
    monkeypatch.setattr(prebuilt, "FOLDER", folder)
    forget()
    assert extension.load().parent == folder
    twice = torch.ops.cem_test_released.twice
    assert twice(torch.ones(2)).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="expected one dimension, got 2"):
        twice(torch.ones(2, 2))
