"""The pictures of docs/what_kills.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import kills_pictures


def test_every_picture_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    kills_pictures.draw_kills_pictures(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("kills_pieces.png", "kills_stacks.png", "kills_runs.png")
    }
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())
