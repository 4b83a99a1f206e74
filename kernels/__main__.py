"""The command ``python -m kernels``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    import argparse

    from kernels.loader import doctor
    from kernels.loader.toolchain import BuildError
    from kernels.support.files import discard_stdout, open_closed_streams
    from kernels.support.names import unknown_name

_COMMANDS = ("doctor", "build", "check")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        argv: the words after ``python -m kernels``; those of the process by default.

    Returns:
        The exit status: 1 where what was asked for cannot work, 2 where it was not understood.
    """
    open_closed_streams()
    parser = _parser()
    words = sys.argv[1:] if argv is None else argv
    command = next((word for word in words if not word.startswith("-")), _COMMANDS[0])
    if command not in _COMMANDS:
        parser.error(str(unknown_name("command", command, _COMMANDS)))
    arguments = parser.parse_args(words)
    if arguments.command is None:
        parser.print_help()
        return 2
    try:
        with one_line_interrupts():
            report = _report(arguments)
    except ValueError as error:
        parser.error(str(error))
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        print(json.dumps(report.to_dict(), indent=2) if arguments.json else report, flush=True)
    except BrokenPipeError:  # its reader has seen enough
        discard_stdout()
    return 0 if report.works else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kernels", description="Looks after the operators in C++ and CUDA."
    )
    commands = parser.add_subparsers(dest="command")
    json_flag = argparse.ArgumentParser(add_help=False)
    json_flag.add_argument("--json", action="store_true", help="print one JSON object")

    examine = commands.add_parser(
        "doctor", parents=[json_flag], help="say what works here, and what to do about the rest"
    )
    examine.add_argument(
        "--device", metavar="NAME", default="cpu", help="what has to work: cpu or cuda (default: cpu)"
    )

    build = commands.add_parser(
        "build",
        parents=[json_flag],
        help="compile operators ahead of time, for containers and offline machines",
    )
    build.add_argument("op", nargs="*", help="a folder of kernels/ (default: every operator)")
    build.add_argument(
        "--device",
        metavar="NAME",
        help="cpu, cuda or all (default: all that the installed torch was built for)",
    )
    build.add_argument(
        "--arch",
        action="append",
        default=[],
        metavar="X.Y",
        help="a GPU to compile for, such as 8.0, 9.0a or 9.0+PTX; may be given several times "
        "(default: $TORCH_CUDA_ARCH_LIST, else this machine's GPUs)",
    )
    build.add_argument(
        "--portable",
        action="store_true",
        help="for any processor of this kind of machine, not for this very one",
    )

    check = commands.add_parser(
        "check", parents=[json_flag], help="walk operators through reference, gradcheck, Numba, C++, CUDA"
    )
    check.add_argument("op", nargs="*", help="a folder of kernels/ (default: every operator)")
    check.add_argument(
        "--device",
        metavar="NAME",
        default="cpu",
        help="what has to work: cpu or cuda (default: cpu); what else works here is checked too",
    )
    return parser


def _report(arguments: argparse.Namespace) -> Any:
    if arguments.command == "doctor":
        return doctor.examine(arguments.device)
    # These import torch. The doctor has to survive a torch that does not import.
    if arguments.command == "build":
        from kernels.loader import ahead

        return ahead.run(arguments.op, arguments.device, arguments.arch, portable=arguments.portable)
    from kernels.ops import check

    return check.run(arguments.op, arguments.device)


if __name__ == "__main__":
    sys.exit(main())
