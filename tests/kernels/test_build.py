"""The loader: what it builds and with what, when it builds anew, and what it says when it
cannot."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import kernels.loader.extension as extension_module
from kernels import BuildError, CompilerMissingError, Extension
from kernels.loader.compile import _SHOWN_LINES, _extract_error
from kernels.loader.cuda import Nvcc
from kernels.loader.toolchain import Compiler, find_compiler, find_torch

Write = Callable[..., Extension]
Call = Callable[[Path], int]
TWICE = Path(__file__).with_name("twice.cpp")
TEXT_OF_MACRO = """#include <cstring>
#define TEXT_(...) #__VA_ARGS__
#define TEXT(...) TEXT_(__VA_ARGS__)
"""


def leftovers(cache_folder: Path) -> set[str]:
    """Returns the suffixes in the cache but for the lock files, which stay."""
    return {path.suffix for path in cache_folder.iterdir()} - {".lock"}


def test_libraries_target_the_stable_abi_of_torch_2_10(
    cache_folder: Path, write_library: Write
) -> None:
    top = (
        "#include <torch/csrc/stable/version.h>\n"
        "static_assert(TORCH_FEATURE_VERSION == ((2ULL << 56) | (10ULL << 48)));"
    )
    assert write_library(top=top).build().is_file()


def test_a_torch_before_the_stable_abi_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with pytest.raises(BuildError, match=r"expected torch >= 2\.10, got 2\.9\.1\+cpu"):
        find_torch()


def test_cxx_names_the_compiler_and_may_have_words_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ccache = tmp_path / "ccache"
    ccache.write_text('#!/bin/sh\necho "$1 1.0"\n')
    ccache.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", "./ccache my-c++")
    compiler = find_compiler()
    assert compiler == Compiler((str(ccache), "my-c++"), "my-c++ 1.0")
    assert compiler.program == "my-c++"
    monkeypatch.setenv("CXX", "no-such-compiler")  # though there may be another one
    with pytest.raises(CompilerMissingError, match=r"expected \$CXX .* got 'no-such-compiler'"):
        find_compiler()


def test_without_another_compiler_it_is_that_of_the_package_ziglang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(
        "kernels.loader.toolchain.answer",
        lambda *words: "clang 1.0" if "ziglang" in words else "",
    )
    assert find_compiler() == Compiler((sys.executable, "-m", "ziglang", "c++"), "clang 1.0")
    monkeypatch.setattr("kernels.loader.toolchain.answer", lambda *words: "")
    with pytest.raises(CompilerMissingError, match="ZIG_GLOBAL_CACHE_DIR"):
        find_compiler()


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
    assert (
        json.loads(library.with_suffix(".json").read_text())["compiler"]
        == find_compiler().version
    )
    assert leftovers(cache_folder) == {".so", ".json"}

    made = library.stat().st_mtime_ns
    assert extension.find() == extension.build() == library
    assert library.stat().st_mtime_ns == made
    assert capfd.readouterr() == ("", "")


def test_an_edited_library_asks_for_a_restart(
    cache_folder: Path, write_library: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = dataclasses.replace(write_library(), name="edited")
    library = first.load()
    assert dataclasses.replace(first, reason="another reason").load() == library
    with pytest.raises(
        BuildError, match="another version of edited is loaded already: restart Python"
    ):
        dataclasses.replace(first, defines=(("SIZE", "3"),)).load()
    header = first.sources[0].with_name("included.h")
    for file in (header, first.sources[0]):
        before = file.read_text() if file.exists() else ""
        file.write_text(f"{before}// edited\n")
        with pytest.raises(BuildError, match="another version of edited"):
            first.load()


def test_operators_that_exist_and_wrong_schemas_do_not_end_the_process(
    cache_folder: Path,
) -> None:
    code = TWICE.read_text().replace("cem_test_twice", "cem_test_registered")
    Extension("registered", cpp_sources=code).load()
    assert torch.ops.cem_test_registered.twice(torch.ones(1)).item() == 2
    wrong_schema = code.replace("cem_test_registered", "cem_test_wrong").replace(
        "Tensor x)", "Tensor x"
    )
    for name, text in (("again", code.replace("2.0f", "3.0f")), ("wrong", wrong_schema)):
        with pytest.raises(
            BuildError, match=rf"in {name}, got 'twice\(Tensor x.*': correct it, or restart"
        ):
            Extension(name, cpp_sources=text).load()
    assert torch.ops.cem_test_registered.twice(torch.ones(1)).item() == 2


def test_sources_are_paths_or_code() -> None:
    assert (
        Extension("one", "a.cpp").sources
        == Extension("one", [Path("a.cpp")]).sources
        == (Path("a.cpp"),)
    )
    assert Extension("one", cuda_sources="code").cuda
    with pytest.raises(
        ValueError, match=r"sources that end in \.cpp or \.cu, got 'code' \(pass code as"
    ):
        Extension("one", ("code",))
    with pytest.raises(
        TypeError, match="expected sources to be a path or a sequence of paths, got 3"
    ):
        Extension("one", 3)
    for name in ("../one", ""):
        with pytest.raises(ValueError, match=f"letters, digits, _ and -, got '{name}'"):
            Extension(name, "a.cpp")
    with pytest.raises(ValueError, match="expected a source of one, got none"):
        Extension("one")


def test_the_path_follows_options_sources_and_headers(
    cache_folder: Path, write_library: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    include, (compiler, *_) = tmp_path / "include", find_compiler().command
    include.mkdir()
    extension = write_library(include_dirs=(include,))
    changes: list[dict[str, Any]] = [
        {},
        {"name": "other"},
        {"defines": (("SIZE", "3"),)},
        {"native": True},
    ]
    changes += [{"cflags": ("-funroll-loops",)}]
    paths = [dataclasses.replace(extension, **change).library_path() for change in changes]
    monkeypatch.setenv("CXX", f"{compiler} -fsanitize=address")
    paths.append(extension.library_path())
    monkeypatch.setenv("CXX", compiler)
    assert extension.library_path() == paths[0]
    beside = extension.sources[0].with_name("beside.cuh")
    for file in (include / "added.h", include / "added.h", beside, extension.sources[0]):
        file.write_text(f"// version {len(paths)}")
        paths.append(extension.library_path())
    assert len(set(paths)) == len(paths) == 10


def test_the_path_of_a_cuda_library_follows_the_options_of_nvcc(
    cache_folder: Path, write_library: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = find_torch()._replace(cuda="13.0")
    monkeypatch.setattr(
        extension_module, "find_nvcc", lambda cuda: Nvcc(Path("nvcc"), "13.0.88")
    )
    monkeypatch.setattr(extension_module, "find_torch", lambda: here)
    host, device = write_library(), write_library(cuda=True, archs=("9.0",))
    before = host.library_path(), device.library_path()
    contracted = dataclasses.replace(device, cuda_cflags="--fmad=true")
    assert contracted.library_path() != before[1]
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "--use_fast_math")
    assert host.library_path() == before[0]
    assert device.library_path() != before[1]


def test_paths_and_values_of_defines_may_hold_blanks_quotes_and_dollars(
    tmp_path: Path, write_library: Write, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = 'std::pair<int, int> \'$HOME\' `ls` $$ #hash "a \\"quoted\\" text"'
    # The last character is a byte that is not UTF-8, as an old folder's ü may be.
    monkeypatch.setenv("CEM_TETRIS_CACHE", str(tmp_path / "it's a $cache: #1 \udcfc"))
    body = f"return SIX + std::strcmp(TEXT(VALUE), {json.dumps(value)});"
    top = f'{TEXT_OF_MACRO}#include "six.h"'
    extension = write_library(
        body, folder="it's $a (source) #1", top=top, defines=(("VALUE", value),)
    )
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


def test_a_failing_compile_shows_the_first_error(
    cache_folder: Path, write_library: Write
) -> None:
    errors = "".join(f'static_assert(false, "number {index}");\n' for index in range(60))
    with pytest.raises(BuildError, match="number 0") as caught:
        write_library(top=errors).build()
    assert "number 59" not in str(caught.value)
    assert leftovers(cache_folder) == set()


def test_a_compiler_that_makes_nothing_is_named(
    cache_folder: Path, write_library: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "true")
    with pytest.raises(BuildError, match=r"expected .* to make 0\.o, .*true made no file"):
        write_library().build()


def test_an_error_at_the_end_is_shown_with_what_leads_to_it() -> None:
    lines = [*(f"note {number}" for number in range(99)), "error: none"]
    assert _extract_error("\n".join(lines)).splitlines() == lines[-_SHOWN_LINES:]


def test_sources_that_change_during_the_build_are_not_cached(
    cache_folder: Path, write_library: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extension, editing = write_library(), tmp_path / "c++"
    edit = f'echo "// edited" >> "{extension.sources[0]}"'
    compile_it = f'exec {find_compiler().command[0]} "$@"'
    editing.write_text(f'#!/bin/sh\ncase "$*" in *-c*) {edit};; esac\n{compile_it}\n')
    editing.chmod(0o755)
    monkeypatch.setenv("CXX", str(editing))
    with pytest.raises(BuildError, match="changed while it was built"):
        extension.build()
    assert leftovers(cache_folder) == set()
