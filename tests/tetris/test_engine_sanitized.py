"""The C++ engine under the address and undefined-behaviour sanitizers of the host compiler."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import kernels
import tetris
from kernels.build import CompilerMissingError
from kernels.compile import CXX_FLAGS
from kernels.toolchain import find_compiler
from tetris.feature_sets import feature_names
from tetris.native import feature_list

SOURCE = Path(__file__).parent / "engine_sanitized.cpp"
FOLDERS = (Path(tetris.__file__).parent / "engine", Path(kernels.__file__).parent)
SANITIZERS = ("-fsanitize=undefined,address", "-fno-sanitize-recover=all", "-O1")
DT = feature_names("dt")
OTHERS = (*(name for name in feature_names("dt_full") if name not in DT), "wells", "column_height_0")


def compiles_and_runs(command: list[str], source: Path, program: Path) -> bool:
    source.write_text("int main() {}\n")
    built = subprocess.run([*command, str(source), "-o", str(program)], capture_output=True, check=False)
    return built.returncode == 0 and subprocess.run([program], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processor", "names"),
    [
        ("native", DT),
        *(("native", OTHERS[i : i + 9]) for i in range(0, len(OTHERS), 9)),
        ("haswell", DT),
        ("nehalem", DT),
    ],
)
def test_games_have_no_undefined_behaviour(processor: str, names: tuple[str, ...], tmp_path: Path) -> None:
    try:
        command = [*find_compiler().command, *CXX_FLAGS, *SANITIZERS, f"-march={processor}"]
    except CompilerMissingError as error:
        pytest.skip(str(error))
    if not compiles_and_runs(command, tmp_path / "empty.cpp", tmp_path / "empty"):
        pytest.skip(f"no sanitizers for {processor} here")
    program = str(tmp_path / "games")
    command += [f"-DTETRIS_FEATURES={feature_list(names)}", str(SOURCE), "-o", program]
    subprocess.run([*command, *(f"-I{folder}" for folder in FOLDERS)], check=True)
    answer = subprocess.run([program], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    right, fastest_lines, scalar_lines, fastest_games, scalar_games = map(int, answer.stdout.split())
    assert right == 1
    assert fastest_lines == scalar_lines > 1000
    assert fastest_games == scalar_games > 1000
