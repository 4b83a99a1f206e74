"""Measure the operators: elementwise ones beside a device copy and PyTorch's own, LLTM beside plain PyTorch.

python scripts/benchmark_operators.py --json operators.json
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure.cli import make_parser, measurement, read
from measure.elementwise import measure_elementwise
from measure.lltm import PASSES, measure_lltm
from measure.provenance import title, write_result
from tetris.commands.command_line import run
from tetris.evaluation.text_table import table


def measured(device: str, quick: bool) -> tuple[dict[str, float], dict[str, Any]]:
    """Return figures and details."""
    where = torch.device(device)
    data = {"elementwise": measure_elementwise(where, quick), "lltm": measure_lltm(where, quick)}
    figures = {name: value for each in data.values() for name, value in each["figures"].items()}
    if device == "cpu":
        figures = {name.replace(".", ".cpu.", 1): value for name, value in figures.items()}
    return figures, {"quick": quick, **data}


def tables(figures: Mapping[str, float], data: Mapping[str, Any]) -> str:
    """Return times of the operators, of the cell, and the figures."""
    operators = [
        [
            row["operator"],
            row["dtype"],
            f"{row['us']:,.1f}",
            f"{row['gb_per_s']:,.3g}",
            f"{row['spread']:.1%}",
        ]
        for row in data["elementwise"]["rows"]
    ]
    cells = [
        [f"{size['batch']} x {size['inputs']} -> {size['states']}", name]
        + [f"{passes[each]['median']:,.1f}" for each in PASSES]
        for size in data["lltm"]["sizes"]
        for name, passes in size["microseconds"].items()
    ]
    blocks = [
        table(["operator", "dtype", "us", "GB/s", "spread"], operators),
        table(["LLTM", "", *(f"{each}, us" for each in PASSES)], cells),
        table(["figure", "value"], [[name, f"{value:,.3f}"] for name, value in figures.items()]),
    ]
    return "\n\n".join(blocks)


@measurement
def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print the tables, write the result."""
    parser = make_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="a look: few sizes, few repeats")
    arguments, device = read(parser, argv)
    figures, data = measured(device, arguments.quick)
    print(f"{title(device)}\n\n{tables(figures, data)}")
    write_result(arguments.json, figures, data, device)


if __name__ == "__main__":
    run(main)
