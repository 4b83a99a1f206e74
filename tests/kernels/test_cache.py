"""The cache folder: where it is, and builds that meet, are killed or cannot write."""

from __future__ import annotations

import contextlib
import fcntl
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
from kernels import BuildError, Extension, cache
from kernels.toolchain import find_compiler

Write = Callable[..., Extension]
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
    """Writes a compiler that sleeps before it compiles; to the cache key it is the usual one."""
    path = folder / "slow-c++"
    compiler = find_compiler().command[0]
    path.write_text(f'#!/bin/sh\ncase "$*" in *-c*) sleep {seconds};; esac\nexec {compiler} "$@"\n')
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
    assert sorted(err.count("building answer") for _, err in answers) == [0, 1]


def test_a_lock_of_another_user_can_be_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "answer.so"
    library.with_suffix(".lock").touch()
    opened = os.open

    def as_another_user(path: Path, flags: int, *mode: int) -> int:
        if flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", as_another_user)
    with pytest.raises(BuildError, match="Permission denied"), cache.lock(tmp_path / "new.so"):
        pass
    with cache.lock(library), library.with_suffix(".lock").open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_killed_build_neither_blocks_nor_poisons_the_next(
    cache_folder: Path, write_library: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extension = write_library()
    monkeypatch.setenv("CXX", str(slow_compiler(tmp_path, 60)))
    with building(extension) as process:
        deadline = time.monotonic() + 60
        while not list(cache_folder.glob("*.work/build.ninja")):
            assert time.monotonic() < deadline, "the other process did not begin to build"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        monkeypatch.delenv("CXX")
        began = time.monotonic()
        library = extension.build()

        assert time.monotonic() - began < 20
        assert library.is_file()
        assert list(cache_folder.glob("*.work")) == []


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "manifest"])
def test_a_damaged_library_is_built_again(
    cache_folder: Path, write_library: Write, call: Callable[[Path], int], damage: str
) -> None:
    extension = write_library()
    library = extension.build()
    content = library.read_bytes()
    middle = len(content) // 2
    damaged = {
        "truncated": content[:middle],
        "flipped": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "empty": b"",
    }
    if damage == "manifest":
        library.with_suffix(".json").write_text("{")
    else:
        library.write_bytes(damaged[damage])
    assert not extension.is_built()
    assert call(extension.build()) == 42
    assert library.read_bytes() == content
    assert extension.is_built()


def test_a_build_sweeps_what_killed_builds_of_other_libraries_left(
    cache_folder: Path, write_library: Write
) -> None:
    abandoned, alive = cache_folder / "old-12.ab_c.work", cache_folder / "new-34.de_f.work"
    for folder in (abandoned, alive):
        folder.mkdir(parents=True)
        (folder / "0.o").write_text("half an object")
    with (cache_folder / "new-34.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        write_library().build()

    assert not abandoned.exists()
    assert alive.exists()


def test_a_process_that_waits_long_says_so(
    cache_folder: Path,
    write_library: Write,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    library = write_library().library_path()
    monkeypatch.setattr(cache, "_QUIET_SECONDS", 0.0)
    library.parent.mkdir()
    with library.with_suffix(".lock").open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)

        def let_go(_: float) -> None:
            fcntl.flock(holder, fcntl.LOCK_UN)

        monkeypatch.setattr(time, "sleep", let_go)
        with cache.lock(library):
            pass

    assert capfd.readouterr().err == f"kernels: waiting for another process that builds {library.stem}\n"


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


def test_a_chosen_folder_that_cannot_be_written_is_an_error(
    write_library: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CEM_TETRIS_CACHE", str(tmp_path / "file" / "cache"))

    with pytest.raises(BuildError, match=r"expected a cache folder that can be written.*CEM_TETRIS_CACHE"):
        write_library().build()


@pytest.fixture
def no_usual_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which no folder can be made; returns the private folder that takes its place."""
    (tmp_path / "file").write_text("")
    (tmp_path / "temporary").mkdir()
    monkeypatch.delenv("CEM_TETRIS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary" / f"cem-tetris-{os.getuid()}"


def test_without_a_usual_folder_a_private_one_is_used_and_said_once(
    no_usual_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cache.cache_dir() == cache.cache_dir() == no_usual_folder
    assert no_usual_folder.stat().st_mode & 0o777 == 0o700
    assert capfd.readouterr().err.count("cannot be written, building in") == 1


def test_a_private_folder_that_others_may_write_is_refused(no_usual_folder: Path) -> None:
    no_usual_folder.mkdir()
    no_usual_folder.chmod(0o777)

    with pytest.raises(BuildError, match="a folder of yours alone"):
        cache.cache_dir()


def test_a_manifest_without_its_library_is_not_listed(cache_folder: Path, write_library: Write) -> None:
    kept = write_library(reason="kept").build()
    write_library(defines=(("SIZE", "3"),)).build().unlink()
    (cache_folder / "torn.json").write_text('{"name": ')
    (cache_folder / "torn.so").write_text("")

    assert [(found["reason"], found["library"]) for found in cache.manifests(cache_folder)] == [
        ("kept", str(kept))
    ]
