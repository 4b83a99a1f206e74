"""Measure the operators: elementwise ones beside a device copy and PyTorch's own, LLTM beside plain PyTorch.

python scripts/benchmark_operators.py --output operators.json
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from _lltm_benchmark import measure_lltm
from _machine import processor_of
from _operator_benchmarks import measure_elementwise
from _operator_tables import Rows, elementwise_rows, lltm_rows
from _results import DEVICES, describe, settle_device, write_json

from kernels import BuildError
from kernels.files import check_writable
from tetris.commands.arguments import add_device
from tetris.commands.command_line import Parser, fail, one_line_errors, run
from tetris.evaluation.text_table import table

BENCHMARK = "operators"
OPERATORS = ("sigmoid", "vector_add", "elementwise_mult", "lltm")
FAMILIES = {
    "elementwise": (measure_elementwise, elementwise_rows),
    "lltm": (measure_lltm, lltm_rows),
}
"""How operators are measured, (device, quick) to a result with ``figures``, and what of it a table holds."""


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...]")
    add_device(parser, DEVICES, what="what is measured")
    parser.add_argument("--quick", action="store_true", help="a look: few sizes, few repeats")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the result as JSON")
    return parser.parse_args(argv)


def measured(device: str, quick: bool) -> dict[str, Any]:
    """Measure; the result as plain values for JSON.

    Raises:
        BuildError: If an operator cannot be built here.
    """
    families = {name: measure(torch.device(device), quick) for name, (measure, _) in FAMILIES.items()}
    figures = {name: value for each in families.values() for name, value in each["figures"].items()}
    if device == "cpu":
        figures = {name.replace(".", ".cpu.", 1): value for name, value in figures.items()}
    return {
        **describe(BENCHMARK, device, OPERATORS),
        "quick": quick,
        "figures": figures,
        **families,
    }


def tables(result: Mapping[str, Any]) -> str:
    """Return the tables of a result, its machine on top."""
    machine = result["machine"]
    name = machine.get("gpu", f"{processor_of(machine)}, {machine['threads']} threads")
    blocks = [f"{name}, torch {result['versions']['torch']}"]
    blocks += [_table(rows(result[family])) for family, (_, rows) in FAMILIES.items()]
    blocks.append(table(["figure", "value"], [[k, f"{v:,.3f}"] for k, v in result["figures"].items()]))
    return "\n\n".join(blocks)


def _table(rows: Rows) -> str:
    return table(list(rows[0]), [list(row.values()) for row in rows])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write the result."""
    arguments = parse_arguments(argv)
    with one_line_errors():
        if arguments.output:
            check_writable(arguments.output)
        device = settle_device(arguments.device)
    try:
        result = measured(device, arguments.quick)
    except BuildError as error:
        fail(error)
    print(tables(result))
    if arguments.output:
        write_json(arguments.output, result)
    return 0


if __name__ == "__main__":
    run(main)
