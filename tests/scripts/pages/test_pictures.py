"""The pictures that are drawn from result files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import literature_blocks, pictures, result_files

pytest.importorskip("matplotlib")


def test_every_picture_is_a_png(tmp_path: Path) -> None:
    pictures.draw_sampling(result_files.load("h200/sampling"), tmp_path / "a.png")
    pictures.draw_targets(result_files.load_all("time_to_target"), tmp_path / "b.png")
    pictures.draw_searches(literature_blocks.experiments("10x10"), tmp_path / "c.png")
    pictures.draw_returns(result_files.load("epyc-2core/planner"), tmp_path / "d.png")
    for picture in ("a.png", "b.png", "c.png", "d.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
