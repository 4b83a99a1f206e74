"""The cache folder: where it is, and builds that meet, are killed or cannot write."""

from __future__ import annotations

import contextlib
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
from kernels import BuildError, Extension
from kernels.loader import cache
from kernels.loader.toolchain import find_compiler

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


def test_a_build_removes_what_was_left_by_one_killed_long_ago(
    cache_folder: Path, write_library: Write
) -> None:
    left, fresh = cache_folder / "old-12.ab_c.work", cache_folder / "new-34.de_f.work"
    cache_folder.mkdir(mode=0o755)
    for folder in (left, fresh):
        folder.mkdir()
        (folder / "0.o").write_text("half an object")
    os.utime(left, (0, 0))
    write_library().build()

    assert (left.exists(), fresh.exists()) == (False, True)


def test_what_is_built_without_a_umask_is_loaded(cache_folder: Path, write_library: Write) -> None:
    before = os.umask(0)
    try:
        write_library().build()
    finally:
        os.umask(before)
    assert write_library().find()


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


def test_nothing_is_built_or_loaded_where_others_can_write(cache_folder: Path, write_library: Write) -> None:
    library = write_library().build()
    library.chmod(0o777)
    assert not write_library().find()
    library.chmod(0o755)
    assert write_library().find()
    cache_folder.chmod(0o777)
    assert not write_library().find()
    refused = "can be written by others: .*chmod go-w it, or set CEM_TETRIS_CACHE"
    with pytest.raises(BuildError, match=f"{cache_folder} {refused}"):
        write_library().build()


def test_a_link_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    folder.symlink_to(tmp_path)
    if os.getuid() == 0:
        os.chown(folder, 1, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 1)
    with pytest.raises(BuildError, match="belongs to another user"), cache.lock(folder / "answer.so"):
        pass


def test_without_a_usual_folder_a_private_one_is_used(
    write_library: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("CEM_TETRIS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert write_library().build().parent == cache.cache_dir() == tmp_path / f"cem-tetris-{os.getuid()}"
    assert write_library().find()
