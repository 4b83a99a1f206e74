"""Estimate controllers that look ahead on 10x20, over every piece that may come next.

python scripts/measure lookahead --json lookahead.json
"""

import argparse

from measure.provenance import Measured
from tetris import Lookahead, Rules, resolve
from tetris.evaluation.estimates import Estimate, estimate
from tetris.evaluation.measurement import Trial

CONTROLLERS = ("best", "pairs")
SECONDS = 60.0  # At least so long per controller.


def is_enough(so_far: Estimate) -> bool:
    """Return whether an estimate has taken long enough."""
    return so_far.seconds >= SECONDS


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Estimate every controller. The figures are lines per game, the ranges 95 % intervals."""
    figures = {}
    ranges = {}
    scores = {}
    for name in CONTROLLERS:
        trial = Trial(
            name, resolve(name), Rules(10, 20), device, lookahead=Lookahead.EXPECTIMAX
        )
        score = estimate(trial, is_enough).to_dict()
        del score["weights"]  # The file of the controller has them.
        figure = f"lookahead.{name}.lines_per_game"
        figures[figure] = score["lines_per_game"]
        ranges[figure] = score["ci95"]
        scores[name] = score
    return Measured(figures, {"ranges": ranges, "scores": scores})
