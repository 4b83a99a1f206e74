"""Measure how many lines a game PPO learns to make: scripts/ppo_tetris.py, from several seeds.

python scripts/measure ppo --json ppo.json
"""

from __future__ import annotations

import argparse

from ppo_tetris import BOARD, learn

from measure.cli import Options, measurement
from measure.provenance import Measured
from tetris.commands.command_line import positive_seconds, up_to

FEATURES = "dt"


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the lines a game at the end, and the learning curves."""
    figures: dict[str, float] = {}
    curves = {}
    for seed in range(1, arguments.seeds + 1):
        controller, curve = learn(FEATURES, arguments.seconds, seed)
        curves[str(seed)] = {"curve": curve, "weights": list(controller.weights)}
        key = f"ppo.{FEATURES}.{BOARD}.seed{seed}"
        figures[f"{key}.lines_per_game"] = curve[-1]["lines_per_game"]
        figures[f"{key}.placements"] = curve[-1]["placements"]
        figures[f"{key}.seconds"] = curve[-1]["seconds"]
    return figures, {"seeds": curves}, {}


OPTIONS: Options = {
    "--seeds": {"type": up_to(100), "default": 3, "help": "of pieces and draws (default: 3)"},
    "--seconds": {"type": positive_seconds, "default": 120.0, "help": "of learning (default: 120)"},
}
main = measurement(measure, __doc__, OPTIONS, devices=("cpu",))
