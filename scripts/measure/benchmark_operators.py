"""Measure the operators: elementwise ones beside a device copy and PyTorch's own, LLTM beside plain PyTorch.

python scripts/benchmark_operators.py --json operators.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure.cli import add_quick, measurement
from measure.elementwise import measure_elementwise
from measure.lltm import measure_lltm
from measure.provenance import Measured
from tetris.commands.command_line import run


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return figures and details."""
    both = {
        "elementwise": measure_elementwise(device, arguments.quick),
        "lltm": measure_lltm(device, arguments.quick),
    }
    figures = {name: value for each in both.values() for name, value in each["figures"].items()}
    if device == "cpu":
        figures = {name.replace(".", ".cpu.", 1): value for name, value in figures.items()}
    return figures, {"quick": arguments.quick, **both}, {}


main = measurement(measure, __doc__, add_quick)

if __name__ == "__main__":
    run(main)
