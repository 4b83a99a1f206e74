"""What a feature of the C++ engine has to define, and what is said where it does not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import kernels.ops
import tetris
from kernels.loader import CompilerMissingError
from kernels.loader.toolchain import find_compiler
from tetris import Policy, Rollout, Streams
from tetris.game.features import FEATURES, AfterState
from tetris.play.engines import feature_list

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
static_assert(FeatureList<Holes, Wells>::all_follow_drops);
static_assert(!FeatureList<Holes, Volume>::all_follow_drops);
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


def test_every_feature_is_defined_in_cpp() -> None:
    for name in FEATURES:
        assert feature_list((name,)).startswith("".join(word.capitalize() for word in name.split("_")[:1]))


def test_a_feature_that_cpp_lacks_is_named_before_the_compiler_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def volume(after: AfterState) -> int:
        return sum(row.bit_count() for row in after.rows)

    monkeypatch.setitem(FEATURES, "volume", volume)  # type: ignore[arg-type] # entered as a new feature is
    monkeypatch.setattr("kernels.loader.Extension.load", lambda _: pytest.fail("nothing is to be compiled"))
    policy = Policy([0.0, -1.0], "holes, volume")
    with pytest.raises(ValueError, match=r"'volume': there is no struct Volume in tetris/engine/"):
        Rollout(policy, Streams())
    played = Rollout(policy, Streams(), "python").advance(3)
    assert int(played.decisions) == 3
