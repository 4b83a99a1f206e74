"""MDPTetris beside the C++ engine: how its scores are read, and what the result holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Script = Callable[..., Any]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder like a built copy, whose program says what theirs does."""
    (tmp_path / "src").mkdir()
    (tmp_path / "data").mkdir()
    program = tmp_path / "src" / "mdptetris_play_games"
    program.write_text(
        "#!/bin/sh\necho '# Initializing'\ni=0; while [ $i -lt $2 ]; do printf '3900 '; i=$((i+1)); done\n"
        "echo; echo 'Mean score: 3900'; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done\n"
    )
    program.chmod(0o755)
    (tmp_path / "src" / "Makefile").write_text("CC = gcc\nCFLAGS = -O3\n")
    return tmp_path


def test_both_sides_are_measured_in_one_run(script: Script, copy: Path) -> None:
    out = copy / "mdptetris.json"
    ended = script("measure.compare_mdptetris", copy, "--games", 2, "--rounds", 2, "--json", out)
    assert ended.status == 0, ended.err
    result = json.loads(out.read_text())
    figures = result["figures"]
    theirs, ours = (
        figures[f"mdptetris.{side}bcts.10x10.decisions_per_second_per_core"] for side in ("", "ours.")
    )
    assert figures["mdptetris.speedup"] == ours / theirs
    assert result["data"]["scores"]["mdptetris"]["lines_per_game"] == 3900
    assert (result["data"]["scores"]["mdptetris"]["games"], result["data"]["cflags"]) == (4, "-O3")


def test_a_folder_without_the_program_is_one_line(script: Script, tmp_path: Path) -> None:
    ended = script("measure.compare_mdptetris", tmp_path)
    assert ended.status == 2
    assert "expected a built copy of MDPTetris" in ended.err
