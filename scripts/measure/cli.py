"""The main function that the measurements share: arguments checked before anything runs, table and result."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kernels import BuildError
from kernels.files import check_writable
from measure.provenance import Measured, title, write_result
from tetris.commands.arguments import add_device
from tetris.commands.command_line import Parser, one_line_errors, positive_int, positive_seconds
from tetris.devices import check_gpu, choose_device
from tetris.evaluation.text_table import table

UNFINISHED = 75
"""Exit status of a measurement that is not done: the same command, run again, goes on with it."""


class Unfinished(Exception):  # noqa: N818 - not an error: there is more to do
    """A measurement is not done yet; the text says how far it is."""


def measurement(
    measure: Callable[[argparse.Namespace, str], Measured],
    doc: str | None,
    add_arguments: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
    operands: str = "",
    devices: Sequence[str] = ("auto", "cpu", "cuda"),
) -> Callable[..., int]:
    """Return the main function of a script that measures, prints its figures and writes its result.

    Args:
        measure: Measures, with the arguments and on a device.
        doc: The description of the script.
        add_arguments: Adds arguments to ``--device``, where there are several devices, and ``--json``.
        operands: What follows the options in the usage.
        devices: The devices there are.

    Returns:
        A function of the command line. Its status is 0, 1 where the measurement failed, 2 after bad input, or
        `UNFINISHED`.
    """

    def main(argv: Sequence[str] | None = None) -> int:
        parser = Parser(description=doc, usage=f"%(prog)s [option ...] {operands}".rstrip())
        add_arguments(parser)
        if len(devices) > 1:
            add_device(parser, devices, what="what is measured")
        parser.add_argument("--json", type=Path, metavar="FILE", help="write the result")
        arguments = parser.parse_args(argv)
        with one_line_errors():
            if arguments.json is not None:
                check_writable(arguments.json)
            if devices == ("cuda",):
                check_gpu("what is measured", "a machine with one")
            device = devices[0] if len(devices) == 1 else choose_device(arguments.device)
        try:
            figures, data, series = measure(arguments, device)
        except Unfinished as state:
            print(f"{state}; the same command goes on", file=sys.stderr)
            return UNFINISHED
        except BuildError:  # a RuntimeError that is told by whoever runs this
            raise
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 1
        print(f"{title(device)}\n{figure_table(figures, data.get('ranges', {}))}", flush=True)
        if arguments.json is not None:
            write_result(arguments.json, figures, data, device, series)
        return 0

    return main


def figure_table(figures: Mapping[str, float], ranges: Mapping[str, Sequence[float]]) -> str:
    """Return the figures as a table, with least and most where they are medians of several measurements."""
    columns = 4 if ranges.keys() & figures.keys() else 2
    rows = []
    for name, value in figures.items():
        values = [
            f"{each:,.0f}" if each >= 1000 else f"{each:.4g}" for each in (value, *ranges.get(name, ()))
        ]
        rows.append([name, *values, "", ""][:columns])
    return table(["figure", "value", "least", "most"][:columns], rows)


def add_length(parser: argparse.ArgumentParser) -> None:
    """Give a parser ``--repeats`` and ``--seconds``."""
    parser.add_argument("--repeats", type=positive_int, default=7, help="measurements (default: 7)")
    parser.add_argument("--seconds", type=positive_seconds, default=1.0, help="of each (default: 1)")


def add_quick(parser: argparse.ArgumentParser) -> None:
    """Give a parser ``--quick``."""
    parser.add_argument("--quick", action="store_true", help="a look: few sizes, few repeats")


def add_keep(parser: argparse.ArgumentParser) -> None:
    """Give a parser ``--keep`` and ``--stop-after``, by which a long measurement goes on another time."""
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep runs there, go on with those there")
    add_stop_after(parser)


def add_stop_after(parser: argparse.ArgumentParser) -> None:
    """Give a parser ``--stop-after``."""
    told = "begin nothing after S seconds; the same command goes on"
    parser.add_argument("--stop-after", type=positive_seconds, metavar="S", help=told)
