"""The main function that the measurements share: arguments checked before anything runs, table and result."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels import BuildError
from kernels.support.files import check_writable
from tetris.commands.arguments import add_device
from tetris.commands.command_line import (
    Parser,
    joined_ranks,
    one_line_errors,
    one_of,
    positive_seconds,
    up_to,
)
from tetris.devices import check_gpu, choose_device
from tetris.evaluation.text_table import table

if TYPE_CHECKING:
    from measure.provenance import Measured

UNFINISHED = 75
"""Exit status of a measurement that is not done: the same command, run again, goes on with it."""

Options = Mapping[str, Mapping[str, Any]]
"""Arguments of a command and what `argparse` is told of each."""

_STOP = "begin nothing after S seconds; the same command goes on"
STOP_AFTER: Options = {"--stop-after": {"type": positive_seconds, "metavar": "S", "help": _STOP}}
KEEP: Options = {"--keep": {"type": Path, "metavar": "FOLDER", "help": "where runs are kept"}, **STOP_AFTER}
LENGTH: Options = {
    "--repeats": {"type": up_to(10_000), "default": 7, "help": "measurements (default: 7)"},
    "--seconds": {"type": positive_seconds, "default": 1.0, "help": "of each (default: 1)"},
}


def boards_option(names: Sequence[str]) -> Options:
    """Return the option that measures some of the boards."""
    return {"--boards": {"nargs": "+", "metavar": "WxH", "choices": names, "help": ", ".join(names)}}


class Unfinished(RuntimeError):  # noqa: N818 - not an error: there is more to do
    """A measurement is not done yet; the text says how far it is."""


def choice(kind: str, names: Sequence[str]) -> dict[str, Any]:
    """Return what `argparse` is told of an argument that is one of some names."""
    return {"type": one_of(kind, names), "metavar": kind.upper(), "help": ", ".join(names)}


def measurement(
    measure: Callable[[argparse.Namespace, str], Measured] | str,
    doc: str | None,
    options: Options | None = None,
    operands: str = "",
    devices: Sequence[str] = ("auto", "cpu", "cuda"),
) -> Callable[..., int]:
    """Return the main function of a script that measures on a device and prints and writes its figures.

    Its arguments are the options, ``--device`` where there are several, and ``--json``; ``operands`` follows
    the options in the usage. A name stands for the function ``measure`` of a module, imported when the
    arguments are read: --help needs no torch. The status is 0, 1 where the measurement failed, 2 after bad
    input, or `UNFINISHED`.
    """

    def main(argv: Sequence[str] | None = None) -> int:
        parser = Parser(description=doc, usage=f"%(prog)s [option ...] {operands}".rstrip())
        for name, told in (options or {}).items():
            parser.add_argument(name, **told)
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
        from kernels.support import ranks
        from measure.provenance import title, write_result  # with torch, as what measures

        run = measure if callable(measure) else importlib.import_module(f"measure.{measure}").measure
        with joined_ranks():
            try:
                figures, data, series = run(arguments, device)
            except BuildError:  # a RuntimeError that is told by whoever runs this
                raise
            except RuntimeError as error:
                print(error, file=sys.stderr)
                return UNFINISHED if isinstance(error, Unfinished) else 1
            print(f"{title(device)}\n{figure_table(figures, data.get('ranges', {}))}", flush=True)
            if arguments.json is not None and ranks.rank() == 0:
                write_result(arguments.json, figures, data, device, series)
        return 0

    return main


def figure_table(figures: Mapping[str, float], ranges: Mapping[str, Sequence[float]]) -> str:
    """Return the figures as a table, with least and most where they are medians of several measurements."""
    columns = 4 if ranges.keys() & figures.keys() else 2
    rows = []
    for name, value in figures.items():
        values = [f"{x:,.0f}" if x >= 1000 else f"{x:.4g}" for x in (value, *ranges.get(name, ()))]
        rows.append([name, *values, "", ""][:columns])
    return table(["figure", "value", "least", "most"][:columns], rows)
