"""The libraries of the CPU, called from Python, under the sanitizers of the host compiler."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.loader import CompilerMissingError
from kernels.loader.toolchain import find_compiler

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def runtime(compiler: list[str], name: str) -> str:
    """Return the path of a library of the compiler; skip where there is none."""
    found = subprocess.run(
        [*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    path = found.stdout.strip()
    if not Path(path).is_absolute():
        pytest.skip(f"needs {name}")
    return path


@pytest.mark.slow(first=True)
def test_operators_and_games_have_nothing_to_report(tmp_path: Path) -> None:
    library, flags = (
        "libasan.so",
        "-fsanitize=address,undefined -fno-sanitize-recover=undefined",
    )
    try:
        command = list(find_compiler().command)
    except CompilerMissingError as error:
        pytest.skip(str(error))
    # The C++ library too: Python loads it later than the sanitizers look for its functions.
    preloaded = f"{runtime(command, library)} {runtime(command, 'libstdc++.so')}"
    compiler = tmp_path / "c++"
    compiler.write_text(
        f'#!/bin/sh\nunset LD_PRELOAD\nexec {shlex.join(command)} "$@" {flags} -g1 -O1\n'
    )
    compiler.chmod(0o755)
    variables = {
        "CXX": str(compiler),
        "CEM_TETRIS_CACHE": str(tmp_path / "cache"),
        "LD_PRELOAD": preloaded,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python and torch leak as they end
    }
    started = subprocess.run(
        [sys.executable, "-c", ""],
        env={**os.environ, **variables},
        capture_output=True,
        check=False,
    )
    if started.returncode:
        pytest.skip(f"Python does not start with {library}")
    done = subprocess.run(
        [sys.executable, str(HERE / "calls.py")],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-5000:]
