"""The command line that the measurements share: its arguments, checked before anything runs, and its end."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from kernels import BuildError
from kernels.files import check_writable
from tetris.commands.arguments import add_device
from tetris.commands.command_line import Parser, fail, one_line_errors, positive_int, positive_seconds
from tetris.devices import choose_device

DEVICES = ("auto", "cpu", "cuda")
UNFINISHED = 75
"""Exit status of a measurement that is not done: the same command, run again, goes on with it."""


class Unfinished(Exception):  # noqa: N818 - not an error: there is more to do
    """A measurement is not done yet; the text says how far it is."""


def measurement(main: Callable[[Sequence[str] | None], None]) -> Callable[..., int]:
    """Let what measures end with a status: 0, 1 where it failed, 2 without a compiler, or `UNFINISHED`."""

    @functools.wraps(main)
    def ended(argv: Sequence[str] | None = None) -> int:
        try:
            main(argv)
        except BuildError as error:
            fail(error)
        except Unfinished as state:
            print(f"{state}; the same command goes on", file=sys.stderr)
            return UNFINISHED
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 1
        return 0

    return ended


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
