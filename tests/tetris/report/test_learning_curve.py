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


def test_a_stage_begins_half_way_from_the_generation_before(tmp_path: Path) -> None:
    axes = pytest.importorskip("matplotlib.figure").Figure().subplots()
    plot_learning_curve(make_run(tmp_path / "a"), axes)  # two generations on 5x6, one on 5x7
    (above,) = axes.child_axes
    assert (
        list(above.get_xticks()),
        [text.get_text() for text in above.get_xticklabels()],
    ) == (
        [1, 2.5],
        ["5x6", "5x7"],
    )
    best, mean, *_ = axes.get_lines()
    assert [line.get_label() for line in (best, mean)] == ["best candidate", "learned mean"]
    assert best.get_xdata()[[0, 1, 3]].tolist() == [1, 2, 3]
    assert best.get_ydata()[2] != best.get_ydata()[2]  # a gap: scores on two boards are no line
