"""What the picture of a learning curve says of the stages."""

from __future__ import annotations

from tetris.report.learning_curve import _labels


def test_wide_stages_have_a_label_each_and_narrow_ones_share_one() -> None:
    assert _labels([("10x8", 0.5, 20.5), ("10x10", 20.5, 48.5)]) == [
        ("10x8", 0.5, 20.5),
        ("10x10", 20.5, 48.5),
    ]
    narrow = [("10x10", 0.5, 30.5), ("10x12", 30.5, 40.5), ("10x20", 40.5, 500.5)]
    assert _labels(narrow) == [("10x10, 10x12", 0.5, 40.5), ("10x20", 40.5, 500.5)]
    assert _labels([("10x6", 0.5, 1.5)]) == [("10x6", 0.5, 1.5)]
