"""The engine for 64-bit ARM, by an emulator: its games are those of this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernels.loader.compile import CXX_FLAGS, find_compiler
from tetris.play.engines import ENGINE_FLAGS

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("arm_games.cpp")


def _games(folder: Path, compiler: list[str], emulator: list[str]) -> str:
    program = folder / Path(compiler[0]).name
    includes = [f"-I{ROOT / 'tetris' / 'engine'}", f"-I{ROOT / 'kernels'}"]
    command = [*compiler, *CXX_FLAGS, *ENGINE_FLAGS, "-static", *includes, PROGRAM, "-o", program]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return subprocess.run(
        [*emulator, program], check=True, capture_output=True, text=True, timeout=300
    ).stdout


@pytest.mark.slow
def test_arm_plays_the_games_of_this_machine(tmp_path: Path) -> None:
    cross, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
    if cross is None or emulator is None:
        pytest.skip("needs aarch64-linux-gnu-g++ and qemu-aarch64")
    games = _games(tmp_path, [cross], [emulator])
    vectors, scalar = games.split("--\n")
    assert vectors == scalar
    assert len(vectors.splitlines()) == 40
    assert games == _games(tmp_path, list(find_compiler().command), [])
