"""What the picture of a learning curve says of the stages."""

from __future__ import annotations

from pathlib import Path

import pytest
from sample_runs import make_run

from tetris.report import plot_learning_curve
from tetris.training import load_run


def test_runs_are_plotted_on_axes_of_ones_own(tmp_path: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    runs = [make_run(tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 2))]
    one, both = figure.subplots(1, 2)
    assert plot_learning_curve(load_run(runs[0]), one) is one
    assert plot_learning_curve(runs, both, across="decisions") is both
    assert one.get_legend().get_texts()[-1].get_text() == "elites, from worst to best"
    assert [text.get_text() for text in both.get_legend().get_texts()] == ["a", "b"]
