"""The command line that the measurements share: ``--device`` and ``--json``, checked before anything runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from kernels.files import check_writable
from tetris.commands.arguments import add_device
from tetris.commands.command_line import Parser, one_line_errors, positive_int, positive_seconds
from tetris.devices import choose_device

DEVICES = ("auto", "cpu", "cuda")


def make_parser(doc: str | None, operands: str = "", devices: Sequence[str] = DEVICES) -> Parser:
    """Return a parser with ``--device``, where there are several, and ``--json``.

    Args:
        doc: The description.
        operands: What follows the options in the usage.
        devices: The devices there are.
    """
    parser = Parser(description=doc, usage=f"%(prog)s [option ...] {operands}".rstrip())
    if devices:
        add_device(parser, devices, what="what is measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result")
    return parser


def add_length(parser: Parser) -> None:
    """Give a parser ``--repeats`` and ``--seconds``."""
    parser.add_argument("--repeats", type=positive_int, default=7, help="measurements (default: 7)")
    parser.add_argument("--seconds", type=positive_seconds, default=1.0, help="of each (default: 1)")


def read(parser: Parser, argv: Sequence[str] | None) -> tuple[argparse.Namespace, str]:
    """Read the command line; return the arguments, and the device that is meant."""
    arguments = parser.parse_args(argv)
    with one_line_errors():
        if arguments.json is not None:
            check_writable(arguments.json)
        device = choose_device(arguments.device) if "device" in arguments else "cuda"
    return arguments, device
