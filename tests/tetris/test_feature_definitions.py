"""What a feature of the C++ engine has to define."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import kernels.ops
import tetris
from kernels.loader import CompilerMissingError
from kernels.loader.toolchain import find_compiler

FOLDERS = (Path(tetris.__file__).parent / "engine", Path(kernels.ops.__file__).parent)
SOURCE = """
#include "decision.h"
namespace tetris {{
struct Volume : FeatureBase {{
    {more}
    template <class L>
    TETRIS_FUNCTION static int of(const Board<L>& board) {{
        return L::count_bits(board.cells & board.geometry.inside);
    }}
}};
static_assert(FeatureList<Holes, Wells>::computable_from_drops);
static_assert(!FeatureList<Holes, Volume>::computable_from_drops);
}}
"""


def compiled(more: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Check a feature that is a function of the whole board alone."""
    try:
        compiler = find_compiler().command
    except CompilerMissingError as error:
        pytest.skip(str(error))
    source = tmp_path / "volume.cpp"
    source.write_text(SOURCE.format(more=more))
    folders = [f"-I{folder}" for folder in FOLDERS]
    command = [*compiler, "-std=c++17", "-fsyntax-only", *folders, str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_feature_without_after_makes_nothing_slow_unasked(tmp_path: Path) -> None:
    answer = compiled("", tmp_path)
    assert answer.returncode != 0
    assert "expected a feature with after(prepared, drop)" in answer.stderr
    assert "Volume" in answer.stderr


def test_a_feature_of_whole_boards_says_so(tmp_path: Path) -> None:
    answer = compiled("static constexpr bool whole_board_only = true;", tmp_path)
    assert answer.returncode == 0, answer.stderr
