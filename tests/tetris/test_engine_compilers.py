"""The engine by other compilers: for 64-bit ARM, played on an emulator, and for old and new
GPUs."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.loader import CompilerMissingError, compile_check
from kernels.loader.compile import CXX_FLAGS, find_compiler
from kernels.loader.cuda import find_nvcc, known_architectures
from tetris.game.feature_sets import feature_names
from tetris.game.policy import Lookahead
from tetris.play import engines as native

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("arm_games.cpp")


def _games(folder: Path, compiler: list[str], emulator: list[str]) -> str:
    program = folder / Path(compiler[0]).name
    includes = [f"-I{folder}" for folder in native.INCLUDES]
    command = [
        *compiler,
        *CXX_FLAGS,
        "-fno-tree-vectorize",
        "-static",
        *includes,
        PROGRAM,
        "-o",
        program,
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return subprocess.run(
        [*emulator, program], check=True, capture_output=True, text=True, timeout=300
    ).stdout


def _find_arm_compiler() -> list[str] | None:
    """Return the command of a compiler for 64-bit ARM, or None if there is none."""
    if gcc := shutil.which("aarch64-linux-gnu-g++"):
        return [gcc]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-linux-musl"]
    return None


def test_arm_plays_the_games_of_this_machine(tmp_path: Path) -> None:
    cross, emulator = _find_arm_compiler(), shutil.which("qemu-aarch64")
    if cross is None or emulator is None:
        pytest.skip("needs qemu-aarch64, and aarch64-linux-gnu-g++ or ziglang")
    games = _games(tmp_path, cross, [emulator])
    vectors, scalar = games.split("--\n")
    assert vectors == scalar
    assert len(vectors.splitlines()) == 40
    assert games == _games(tmp_path, list(find_compiler().command), [])


@pytest.mark.parametrize("features", ["dt", "dellacherie", "resampling"])
def test_the_cuda_libraries_compile_for_old_and_new_gpus(features: str) -> None:
    if features == "resampling":
        library = native.resampling_extension()
    else:
        lookahead = Lookahead.NONE if features == "dt" else Lookahead.EXPECTIMAX
        library = native.with_cuda(native.extension(feature_names(features), lookahead))
    try:
        architecture = known_architectures(find_nvcc())[-1] if features == "dt" else "sm_75"
        for source in library.sources:
            compile_check(source, architecture, library.include_dirs, library.defines)
    except CompilerMissingError as error:
        pytest.skip(str(error))
