"""Measure controllers by rules that other reports use: a board of 10x16, and pieces from bags of seven.

python scripts/measure other_rules
python scripts/measure other_rules --device cuda --json other_rules.json

The survey of Thiery and Scherrer (2009) scores the game in which a piece appears inside the board of 10x20.
Its uppermost rows are then little room for the stack, and the simplified game on 10x16 is near it.
The measurement original_rule has that game itself. A bag holds every piece once. By the published rule; ten
minutes on two cores.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from measure import cli
from measure.played import played
from measure.provenance import Measured
from tetris import Rules

MILLION = 10**6
DECISIONS = {
    ("10x16", "uniform"): {
        "dellacherie": 400 * MILLION,
        "bcts": 600 * MILLION,
        "dt20": 800 * MILLION,
        "best": 800 * MILLION,
    },
    ("10x10", "uniform"): dict.fromkeys(("dellacherie", "bcts", "dt20", "best"), 20 * MILLION),
    ("10x10", "bag"): {
        "dellacherie": 60 * MILLION,
        "bcts": 200 * MILLION,
        "dt20": 200 * MILLION,
        "best": 200 * MILLION,
    },
    ("10x12", "bag"): {"dellacherie": 200 * MILLION, "bcts": 400 * MILLION, "dt20": 400 * MILLION},
}
"""Decisions by board, pieces and controller, in which tens to thousands of games end."""
TIMES_ON_CUDA = 100
"""What a GPU plays more of."""

Table = Mapping[tuple[str, str], Mapping[str, int]]
"""Decisions by board, pieces and controller."""


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return lines a game of each controller by each of the rules."""
    return measure_all("other_rules", DECISIONS, device)


def measure_all(measurement: str, table: Table, device: str, rule: str = "published") -> Measured:
    """Return lines a game of each controller of a table, as figures of a measurement."""
    measured: list[dict[str, Any]] = []
    figures: dict[str, float] = {}
    for (board, pieces), controllers in table.items():
        rules = Rules.of(*Rules.parse_board(board), rule, pieces)
        for name, decisions in controllers.items():
            found = played(name, rules, decisions * (TIMES_ON_CUDA if device == "cuda" else 1), device)
            measured.append(found)
            if found["games"]:
                figures[f"{measurement}.{board}.{pieces}.{name}.lines_per_game"] = found["lines_per_game"]
    return figures, {"measurements": measured}, {}


main = cli.measurement(measure, __doc__)
