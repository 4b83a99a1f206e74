"""scripts/_speed_plot.py: the picture names engines, controllers, figures and units."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from _speed_plot import Speed, draw_speeds

matplotlib = pytest.importorskip("matplotlib")

SPEEDS = [
    Speed("python", "dt20", [1500.0, 1520.0, 1480.0]),
    Speed("cpu, all threads", "dt20", [9.4e6, 9.1e6, 9.5e6]),
    Speed("cpu, all threads", "bcts", [8.2e6]),
]


def test_a_picture_names_engines_controllers_figures_and_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")  # text as text
    assert draw_speeds(SPEEDS, tmp_path / "a.svg", "board 10x20, a processor")
    texts = re.findall(r"<text [^>]*>([^<]*)</text>", (tmp_path / "a.svg").read_text(encoding="utf-8"))
    expected = {"board 10x20, a processor", "python", "cpu, all threads", "dt20", "bcts"}
    assert expected <= set(texts)
    assert {"1,500", "9,400,000", "8,200,000"} <= set(texts)
    assert "decisions per second (log scale): median, least and most" in texts


def test_the_same_speeds_give_the_same_file(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        assert draw_speeds(SPEEDS[:1], tmp_path / name, "title")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
