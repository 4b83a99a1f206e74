"""The C++ engine under the address and undefined-behaviour sanitizers of the host compiler."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import kernels.ops
import tetris
from kernels.loader import CompilerMissingError
from kernels.loader.compile import CXX_FLAGS
from kernels.loader.toolchain import find_compiler
from tetris.game.feature_sets import feature_names, surface_features
from tetris.play.engines import feature_list

SOURCE = Path(__file__).parent / "engine_sanitized.cpp"
FOLDERS = (Path(tetris.__file__).parent / "engine", Path(kernels.ops.__file__).parent)
SANITIZERS = ("-fsanitize=undefined,address", "-fno-sanitize-recover=all", "-O1")
DT = feature_names("dt")
OTHERS = (*(name for name in feature_names("dt_full") if name not in DT), "wells")
COLUMNS = surface_features()


def compiles_and_runs(command: list[str], source: Path, program: Path) -> bool:
    source.write_text("int main() {}\n")
    built = subprocess.run([*command, str(source), "-o", str(program)], capture_output=True, check=False)
    return built.returncode == 0 and subprocess.run([program], check=False).returncode == 0


def run_sanitized(
    source: Path, flags: tuple[str, ...], names: tuple[str, ...], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Compile a program with flags for a list of features, and run it; skip where there is no sanitizer."""
    try:
        command = [*find_compiler().command, *CXX_FLAGS, *flags]
    except CompilerMissingError as error:
        pytest.skip(str(error))
    if not compiles_and_runs(command, folder / "empty.cpp", folder / "empty"):
        pytest.skip(f"no program with {' '.join(flags)} runs here")
    program = str(folder / "games")
    command += [f"-DTETRIS_FEATURES={feature_list(names)}", str(source), "-o", program]
    subprocess.run([*command, *(f"-I{each}" for each in FOLDERS)], check=True)
    return subprocess.run([program], capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processor", "names"),
    [("native", (*DT[:6], *OTHERS[::4], *COLUMNS[5:8])), ("x86-64", DT[6:])],
)
def test_games_have_no_undefined_behaviour(processor: str, names: tuple[str, ...], tmp_path: Path) -> None:
    answer = run_sanitized(SOURCE, (*SANITIZERS, f"-march={processor}"), names, tmp_path)
    right, *counts = map(int, answer.stdout.split())
    assert right == 1
    for fastest, scalar, least in ((counts[0:2], counts[2:4], 1000), (counts[4:6], counts[6:8], 200)):
        assert fastest == scalar  # lines and games, with one piece known and with two
        assert min(fastest) > least
