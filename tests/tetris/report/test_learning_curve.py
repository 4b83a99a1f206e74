"""What the picture of a learning curve says of the stages."""

from __future__ import annotations

from pathlib import Path

import pytest
from sample_runs import make_run

from tetris.report import plot_learning_curve
from tetris.report.learning_curve import _labels
from tetris.training import load_run


def test_wide_stages_have_a_label_each_and_narrow_ones_share_one() -> None:
    assert _labels([("10x8", 0.5, 20.5), ("10x10", 20.5, 48.5)]) == [
        ("10x8", 0.5, 20.5),
        ("10x10", 20.5, 48.5),
    ]
    narrow = [("10x10", 0.5, 30.5), ("10x12", 30.5, 40.5), ("10x20", 40.5, 500.5)]
    assert _labels(narrow) == [("10x10, 10x12", 0.5, 40.5), ("10x20", 40.5, 500.5)]
    assert _labels([("10x6", 0.5, 1.5)]) == [("10x6", 0.5, 1.5)]


def test_runs_are_plotted_on_axes_of_ones_own(tmp_path: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    runs = [make_run(tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 2))]
    one, both = figure.subplots(1, 2)
    assert plot_learning_curve(load_run(runs[0]), one) is one
    assert plot_learning_curve(runs, both, across="decisions") is both
    assert one.get_legend().get_texts()[-1].get_text() == "elites, from worst to best"
    assert [text.get_text() for text in both.get_legend().get_texts()] == ["a", "b"]
