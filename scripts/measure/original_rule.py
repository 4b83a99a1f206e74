"""Measure controllers by the rule of the original game: the next piece has to appear inside the board.

python scripts/measure original_rule

The survey of Thiery and Scherrer (2009) scores this game on 10x20. Five minutes on two cores.
"""

from __future__ import annotations

import argparse

from measure.cli import measurement
from measure.other_rules import MILLION, measure_all
from measure.provenance import Measured

DECISIONS = {
    ("10x20", "uniform"): {"dellacherie": 400 * MILLION, "bcts": 800 * MILLION, "dt20": 1000 * MILLION}
}
"""Decisions by board, pieces and controller, in which some 200 games end."""


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return lines a game of each controller."""
    return measure_all("original_rule", DECISIONS, device, "original")


main = measurement(measure, __doc__)
