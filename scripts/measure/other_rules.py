"""Measure controllers by rules that other reports use: the original game's, and pieces from bags of seven.

python scripts/measure other_rules
python scripts/measure other_rules --device cuda --json other_rules.json

The survey of Thiery and Scherrer (2009) scores the original game, in which a piece appears inside the board
of 10x20. Its uppermost rows are then little room for the stack, and the simplified game on 10x16 is near it.
A bag holds every piece once. Fifteen minutes on two cores.
"""

from __future__ import annotations

import argparse
from typing import Any

from measure.cli import measurement
from measure.provenance import Measured
from tetris import Rules, published
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.scores import Limit, Measurement, progress_bar
from tetris.evaluation.scores import measure as measure_score

MILLION = 10**6
DECISIONS = {
    ("10x20", "original", "uniform"): {"dellacherie": 800, "bcts": 1600, "dt20": 2000},
    ("10x16", "published", "uniform"): {"dellacherie": 400, "bcts": 600, "dt20": 800},
    ("10x10", "published", "bag"): {"dellacherie": 60, "dt20": 200, "best": 200},
    ("10x10", "published", "uniform"): {"dellacherie": 20, "dt20": 20, "best": 20},
}
"""Millions of decisions by board, rule, pieces and controller, in which some hundreds of games end."""
TIMES_ON_CUDA = 100
"""What a GPU plays more of."""


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return lines a game of each controller by each of the rules."""
    measured: list[dict[str, Any]] = []
    figures: dict[str, float] = {}
    for (board, rule, pieces), controllers in DECISIONS.items():
        rules = Rules.of(*Rules.parse_board(board), rule, pieces)
        for name, millions in controllers.items():
            limit = Limit(decisions=millions * MILLION * (TIMES_ON_CUDA if device == "cuda" else 1))
            controller = published(name)
            with progress_bar(f"{name} on {board}, {rule}, {pieces}", limit) as show:
                score, seconds = measure_score(controller, rules, limit, DEFAULT_SEED, device, show)
            found = Measurement(
                *(name, controller, rules, pieces, DEFAULT_SEED, device, score, seconds)
            ).to_dict()
            measured.append(found)
            if found["games"]:
                figures[f"other_rules.{board}.{rule}.{pieces}.{name}.lines_per_game"] = found[
                    "lines_per_game"
                ]
    return figures, {"measurements": measured}, {}


main = measurement(measure, __doc__)
