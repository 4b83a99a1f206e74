"""The loader: what it builds, where it keeps it, when it builds anew, and what it says when it cannot."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import kernels.loader.extension as extension_module
from kernels import BuildError, Extension
from kernels.loader.cuda import Nvcc
from kernels.loader.toolchain import find_compiler, find_torch

Write = Callable[..., Extension]
Call = Callable[[Path], int]
TWICE = Path(__file__).with_name("twice.cpp")
TEXT_OF_MACRO = "#define TEXT_(...) #__VA_ARGS__\n#define TEXT(...) TEXT_(__VA_ARGS__)\n"


def leftovers(cache_folder: Path) -> set[str]:
    """Returns the suffixes in the cache but for the lock files, which stay."""
    return {path.suffix for path in cache_folder.iterdir()} - {".lock"}


def test_an_operator_of_the_stable_abi_builds_loads_and_runs(cache_folder: Path) -> None:
    library = Extension("twice_of_test", (TWICE,)).load()

    assert library.parent == cache_folder
    assert torch.ops.cem_test_twice.twice(torch.tensor([1.5, -2.0])).tolist() == [3.0, -4.0]


def test_libraries_target_the_stable_abi_of_torch_2_10(cache_folder: Path, write_library: Write) -> None:
    top = (
        "#include <torch/csrc/stable/version.h>\n"
        "static_assert(TORCH_FEATURE_VERSION == ((2ULL << 56) | (10ULL << 48)));"
    )
    assert write_library(top=top).build().is_file()


def test_a_build_says_what_it_does_and_is_used_again_in_silence(
    cache_folder: Path, write_library: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    extension = write_library(reason="feature set dt")
    assert not extension.find()
    library = extension.build()
    out, err = capfd.readouterr()
    assert out == ""
    first, last = err.splitlines()
    assert first == f"kernels: building answer (feature set dt) into {cache_folder} ..."
    assert last.startswith("kernels: answer built in ")
    assert json.loads(library.with_suffix(".json").read_text())["compiler"] == find_compiler().version
    assert leftovers(cache_folder) == {".so", ".json"}

    made = library.stat().st_mtime_ns
    assert extension.find() == extension.build() == library
    assert library.stat().st_mtime_ns == made
    assert capfd.readouterr() == ("", "")


def test_a_second_library_of_a_loaded_name_is_refused(
    cache_folder: Path, write_library: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.ops, "load_library", lambda path: None)
    first = dataclasses.replace(write_library(), name="one_of_two")
    library = first.load()

    assert dataclasses.replace(first, reason="another reason").load() == library
    with pytest.raises(BuildError, match="another library one_of_two is loaded already: start a new process"):
        dataclasses.replace(first, defines=(("SIZE", "3"),)).load()


def test_the_path_follows_the_options(
    cache_folder: Path, write_library: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    extension, (compiler, *_) = write_library(), find_compiler().command
    changes: list[dict[str, Any]] = [{"name": "other"}, {"defines": (("SIZE", "3"),)}, {"native": True}]
    changes += [{"flags": ("-funroll-loops",)}, {}]
    paths = [dataclasses.replace(extension, **change).library_path() for change in changes]
    monkeypatch.setenv("CXX", f"{compiler} -fsanitize=address")
    paths.append(extension.library_path())
    assert len(set(paths)) == 6
    monkeypatch.setenv("CXX", compiler)
    assert extension.library_path() == paths[4]


def test_the_path_of_a_cuda_library_follows_the_options_of_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension_module, "find_nvcc", lambda cuda: Nvcc(Path("nvcc"), "13.0.88"))
    monkeypatch.setattr(extension_module, "find_torch", lambda: find_torch()._replace(cuda="13.0"))
    host = Extension("twice", (TWICE,))
    device = Extension("twice", (TWICE,), cuda=True, archs=("9.0",))
    before = host.library_path(), device.library_path()
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "--use_fast_math")
    assert host.library_path() == before[0]
    assert device.library_path() != before[1]


def test_the_path_follows_sources_and_headers(
    cache_folder: Path, write_library: Write, tmp_path: Path
) -> None:
    include = tmp_path / "include"
    include.mkdir()
    extension = write_library(include_dirs=(include,))
    paths = {extension.library_path()}
    (include / "added.h").write_text("// header")
    paths.add(extension.library_path())
    (include / "added.h").write_text("// header, changed")
    paths.add(extension.library_path())
    (extension.sources[0].parent / "beside.cuh").write_text("// header")
    paths.add(extension.library_path())
    extension.sources[0].write_text("// changed")
    paths.add(extension.library_path())

    assert len(paths) == 5


def test_values_of_defines_arrive_as_they_are(cache_folder: Path, write_library: Write, call: Call) -> None:
    value = 'std::pair<int, int> \'$HOME\' `ls` $$ #hash "a \\"quoted\\" text"'
    top = f"#include <cstring>\n{TEXT_OF_MACRO}"
    body = f"return std::strcmp(TEXT(VALUE), {json.dumps(value)});"
    assert call(write_library(body, top=top, defines=(("VALUE", value),)).build()) == 0


def test_paths_may_hold_blanks_quotes_and_dollars(
    tmp_path: Path, write_library: Write, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEM_TETRIS_CACHE", str(tmp_path / "it's a $cache: #1"))
    extension = write_library("return SIX;", folder="it's $a (source) #1", top='#include "six.h"')
    (extension.sources[0].parent / "six.h").write_text("#define SIX 6\n")

    assert call(extension.build()) == 6


def test_a_header_outside_the_key_is_refused(cache_folder: Path, write_library: Write) -> None:
    extension = write_library("return SIX;", top='#include "deeper/six.h"')
    hidden = extension.sources[0].parent / "deeper" / "six.h"
    hidden.parent.mkdir()
    hidden.write_text("#define SIX 6\n")

    with pytest.raises(BuildError, match=r"expected every header of answer .* got .*six\.h"):
        extension.build()
    assert leftovers(cache_folder) == set()


def test_a_failing_compile_shows_the_first_error(cache_folder: Path, write_library: Write) -> None:
    errors = "".join(f'static_assert(false, "number {index}");\n' for index in range(60))
    extension = write_library(top=errors)

    with pytest.raises(BuildError, match="number 0") as caught:
        extension.build()
    assert "number 59" not in str(caught.value)
    assert leftovers(cache_folder) == set()


def test_sources_that_change_during_the_build_are_not_cached(
    cache_folder: Path, write_library: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extension = write_library()
    compiler = find_compiler().command[0]
    editing = tmp_path / "c++"
    edit = f'echo "// edited" >> "{extension.sources[0]}"'
    editing.write_text(f'#!/bin/sh\ncase "$*" in *-c*) {edit};; esac\nexec {compiler} "$@"\n')
    editing.chmod(0o755)
    monkeypatch.setenv("CXX", str(editing))

    with pytest.raises(BuildError, match="changed while it was built"):
        extension.build()
    assert leftovers(cache_folder) == set()


def test_a_library_that_cannot_be_loaded_is_named(cache_folder: Path, write_library: Write) -> None:
    extension = write_library()
    extension.build().write_text("no library")
    with pytest.raises(BuildError, match=r"cannot load .*answer-.*: remove it"):
        extension.load()


def test_an_error_of_the_disk_names_the_remedy(
    cache_folder: Path, write_library: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    extension = write_library()
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(BuildError, match=r"No space left on device.*: set CEM_TETRIS_CACHE"):
        extension.build()
    assert leftovers(cache_folder) == set()
