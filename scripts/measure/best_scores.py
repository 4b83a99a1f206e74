"""Score the controllers that come with the package on low boards, where a GPU ends many thousand games.

python scripts/measure/best_scores.py --json best_scores.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure.cli import measurement
from measure.engines import build_engines
from measure.processes import evaluate
from measure.provenance import Measured
from tetris.commands.command_line import run
from tetris.controller import resolve

CONTROLLERS = ("best", "anywidth", "dt20")
DECISIONS = {"10x10": 2_000_000_000, "10x12": 10_000_000_000}
"""Of each controller: tens of thousands of games of the best one."""


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the scores."""
    build_engines((resolve(name).features, 10) for name in CONTROLLERS)
    found = [each for board, count in DECISIONS.items() for each in evaluate(CONTROLLERS, board, count)]
    figures = {
        f"{each['controller']}.{each['board']}.lines_per_game": each["lines_per_game"] for each in found
    }
    for each in found:
        del each["features"], each["weights"]
    return figures, {"measurements": found}, {}


main = measurement(measure, __doc__, devices=("cuda",))

if __name__ == "__main__":
    run(main)
