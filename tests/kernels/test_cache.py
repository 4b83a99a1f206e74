"""The cache folder: where it is; builds that meet, are killed or cannot write; libraries built
ahead."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kernels
from kernels import BuildError, CompilerMissingError, Extension
from kernels.loader import cache
from kernels.loader import extension as loader
from kernels.loader.cuda import Nvcc
from kernels.loader.toolchain import find_compiler, find_torch

Write = Callable[..., Extension]
Put = Callable[..., Path]
PROJECT = Path(kernels.__file__).parents[1]
BUILD = "import sys; from pathlib import Path; from kernels import Extension; "
BUILD += "print(Extension('answer', (Path(sys.argv[1]),)).build())"


@contextlib.contextmanager
def building(extension: Extension) -> Iterator[subprocess.Popen[str]]:
    """Builds in another process, and ends it with the compilers that it started."""
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(extension.sources[0])],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def slow_compiler(folder: Path, seconds: float) -> Path:
    """Writes a compiler that sleeps before it compiles; to the cache key it is the usual
    one."""
    path = folder / "slow-c++"
    compiler = find_compiler().command[0]
    path.write_text(
        f'#!/bin/sh\ncase "$*" in *-c*) sleep {seconds};; esac\nexec {compiler} "$@"\n'
    )
    path.chmod(0o755)
    return path


def test_two_processes_that_start_at_once_build_once(
    cache_folder: Path, write_library: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extension = write_library()
    monkeypatch.setenv("CXX", str(slow_compiler(tmp_path, 2)))
    with building(extension) as one, building(extension) as two:
        answers = [process.communicate(timeout=120) for process in (one, two)]

    assert [out.strip() for out, _ in answers] == [str(extension.library_path())] * 2
    assert sorted(err.splitlines()[0].split(" answer")[0] for _, err in answers) == [
        "kernels: building",
        "kernels: waiting for another process that builds",
    ]


def test_a_killed_build_neither_blocks_nor_poisons_the_next(
    cache_folder: Path, write_library: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extension = write_library()
    monkeypatch.setenv("CXX", str(slow_compiler(tmp_path, 60)))
    with building(extension) as process:
        deadline = time.monotonic() + 60
        while not list(cache_folder.glob("*.work/defines.h")):
            assert time.monotonic() < deadline, "the other process did not begin to build"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        monkeypatch.delenv("CXX")
        began = time.monotonic()
        library = extension.build()

        assert time.monotonic() - began < 20
        assert library.is_file()


def test_the_folder_is_the_variable_then_xdg_then_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEM_TETRIS_CACHE", "~/mine")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.cache_dir() == tmp_path / "home" / "mine"

    monkeypatch.delenv("CEM_TETRIS_CACHE")
    assert cache.cache_dir() == tmp_path / "xdg" / "cem-tetris"

    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.cache_dir() == tmp_path / "home" / ".cache" / "cem-tetris"


def test_nothing_is_built_or_loaded_where_others_can_write(
    cache_folder: Path, write_library: Write
) -> None:
    before = os.umask(0)
    write_library().build()
    os.umask(before)
    assert write_library().find()
    cache_folder.chmod(0o777)
    assert not write_library().find()
    refused = "can be written by others: .*chmod go-w it, or set CEM_TETRIS_CACHE"
    with pytest.raises(BuildError, match=f"{cache_folder} {refused}"):
        write_library().build()


def test_a_link_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    folder.symlink_to(tmp_path)
    if os.getuid() == 0:
        os.chown(folder, 1, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 1)
    with (
        pytest.raises(BuildError, match="belongs to another user"),
        cache.lock(folder / "answer.so"),
    ):
        pass


def test_without_a_usual_folder_a_private_one_is_used(
    write_library: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("CEM_TETRIS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert (
        write_library().build().parent
        == cache.cache_dir()
        == tmp_path / f"cem-tetris-{os.getuid()}"
    )
    assert write_library().find()


@pytest.mark.skipif(os.getuid() != 0, reason="root alone can become another user")
def test_a_home_that_may_not_be_searched_is_passed_over(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    lines = "from kernels.loader import cache; import os, tempfile; os.setuid(65534); "
    lines += "print(cache.cache_dir()); print(list(cache.manifests('*')))"
    known = {name: value for name, value in os.environ.items() if name != "CEM_TETRIS_CACHE"}
    answer = subprocess.run(
        [sys.executable, "-c", lines],
        env={**known, "HOME": str(home), "XDG_CACHE_HOME": "", "TMPDIR": "/tmp"},
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout.splitlines() == ["/tmp/cem-tetris-65534", "[]"], answer.stderr


@pytest.mark.parametrize("folder", ["/dev/null", "/dev/null/cache", "/proc/cache"])
def test_a_folder_that_cannot_be_used_is_named_in_one_sentence(
    folder: str, write_library: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEM_TETRIS_CACHE", folder)
    with pytest.raises(
        BuildError, match=f"^expected a cache folder that .*{folder}.* set CEM_TETRIS_CACHE"
    ):
        write_library().load()


def test_without_a_folder_for_temporary_files_there_is_the_usual_one(
    write_library: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.delenv("CEM_TETRIS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    monkeypatch.setattr(tempfile, "gettempdir", missing)
    with pytest.raises(BuildError, match="got /dev/null/cem-tetris"):
        write_library().load()


def test_a_damaged_library_is_named_with_what_is_wrong_with_it(
    cache_folder: Path, write_library: Write
) -> None:
    extension = write_library()
    extension.build().write_bytes(b"")
    with pytest.raises(BuildError, match=r"cannot load .* file too short"):
        extension.load()


def test_a_library_is_built_when_nobody_reads_the_progress(
    cache_folder: Path, write_library: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(text: str) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "write", refuse, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert write_library().build().exists()


def test_a_disk_that_is_full_is_named_in_place_of_what_the_compiler_says(
    cache_folder: Path, write_library: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "full-c++"
    output = "fatal error: error writing to answer.s: No space left on device"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *-c*) echo "{output}"; exit 1;; esac\necho 1.0\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(BuildError) as raised:
        write_library().build()
    assert str(raised.value).startswith(
        f"expected a cache folder that can be written, got {cache_folder} (No"
    )
    assert "\n" not in str(raised.value)


def test_a_library_for_another_processor_or_of_other_sources_is_refused_with_the_reason(
    cache_folder: Path,
    write_library: Write,
    hide_compilers: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extension = write_library(native=True)
    extension.build()
    hide_compilers()
    why = (
        r"no C\+\+ compiler .*answer-.* is for other sources, another torch or processor: inst"
    )
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(loader, "processor", lambda: "another processor")
        with pytest.raises(CompilerMissingError, match=why):
            extension.load()
    with pytest.raises(CompilerMissingError, match=why):
        write_library("return 2;", native=True).load()


def test_a_library_with_a_broken_manifest_is_passed_over(
    cache_folder: Path, write_library: Write, hide_compilers: Callable[[], None]
) -> None:
    manifest = write_library().build().with_suffix(".json")
    hide_compilers()
    assert write_library().find()
    for text in ("{", "[]", "{}", '{"processor": null, "architectures": 8}'):
        manifest.write_text(text)
        assert write_library().find() is None


def test_a_usual_folder_that_became_read_only_is_still_used(
    write_library: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
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
    """Puts a library for some GPUs into the cache of a machine with nvcc and two GPUs, of 8.0
    and of 8.6."""
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
        cache.install(draft, made._describe_tools(), library)
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
    both = put("8.0", "8.6+PTX", "9.0")
    assert extension.find() == both
    monkeypatch.setattr(loader, "find_nvcc", lambda cuda: Nvcc(Path("nvcc"), "13.0.99"))
    assert extension.find() is None


def test_a_library_that_a_group_or_others_can_write_is_not_loaded(tmp_path: Path) -> None:
    library = tmp_path / "answer.so"
    library.write_bytes(b"")
    for path, mode in ((library, 0o644), (tmp_path, 0o755)):
        for more in (0o020, 0o002):
            path.chmod(mode | more)
            assert (
                cache.objection(library)
                == f"is not loaded, for {path} can be written by others"
            )
        path.chmod(mode)
        assert cache.objection(library) == ""


def test_a_library_appears_after_its_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "built.so").touch()
    appeared: list[Path] = []
    monkeypatch.setattr(os, "replace", lambda path, target: appeared.append(target))
    cache.install(tmp_path / "built.so", {}, tmp_path / "a.so")
    assert appeared == [tmp_path / "a.json", tmp_path / "a.so"]


def test_what_builds_left_that_were_killed_long_ago_is_removed(tmp_path: Path) -> None:
    going_on, killed = tmp_path / "new.work", tmp_path / "old.work"
    for folder, days in ((going_on, 0.5), (killed, 2)):
        folder.mkdir()
        os.utime(folder, (time.time() - days * 86_400,) * 2)
    with cache.work_dir(tmp_path / "answer.so") as work:
        assert set(tmp_path.iterdir()) == {going_on, work}
    assert list(tmp_path.iterdir()) == [going_on]
