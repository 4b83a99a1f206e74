"""Estimate controllers that look ahead on 10x20, over every piece that may come next.

python scripts/measure lookahead --json lookahead.json
"""

import argparse
from typing import Any

from measure.provenance import Measured, measured_scores
from tetris import Lookahead, Rules, resolve
from tetris.evaluation.estimates import Estimate, estimate
from tetris.evaluation.measurement import Trial

CONTROLLERS = ("best", "pairs")
SECONDS = 60.0  # At least so long per controller.


def is_enough(so_far: Estimate) -> bool:
    """Return whether an estimate has taken long enough."""
    return so_far.seconds >= SECONDS


def estimate_controller(name: str, device: str) -> dict[str, Any]:
    """Return the estimated score of a controller."""
    controller = resolve(name)
    trial = Trial(name, controller, Rules(10, 20), device, lookahead=Lookahead.EXPECTIMAX)
    return estimate(trial, is_enough).to_dict()


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Estimate every controller. The figures are lines per game, the ranges 95 % intervals."""
    scores = {name: estimate_controller(name, device) for name in CONTROLLERS}
    return measured_scores("lookahead", scores)
