"""The command ``python -m kernels``."""

import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    import argparse

    from cem_tetris import explain_clash
    from kernels.loader.toolchain import BuildError
    from kernels.support.files import discard_stdout, prepare_streams


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``python -m kernels``, and return its exit code: 0 if everything works, otherwise 1.

    Raises:
        SystemExit: the arguments are invalid (status 2), or ask for help (status 0).
    """
    prepare_streams()
    # Another installed distribution may hide a package of this project.
    clash = explain_clash()
    if clash:
        print(clash, file=sys.stderr)
        return 1

    parser = _make_parser()
    words = sys.argv[1:] if argv is None else argv
    # Without arguments, print the help.
    options = vars(parser.parse_args(words or ["--help"]))
    wants_json = options.pop("json")
    command_name = options.pop("command")

    try:
        # Ctrl-C prints one line instead of a traceback.
        with one_line_interrupts():
            # Import only the module of this command. The other commands import torch, and the
            # doctor must run even if that fails.
            command = importlib.import_module(f"kernels.ops.{command_name}")
            # The options that are left are the arguments of the command's function `run`.
            report = command.run(**options)
    except ValueError as error:
        parser.error(str(error))
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    text = str(report)
    if wants_json:
        text = json.dumps({"works": report.works, **asdict(report)}, indent=2)
    _print(text)
    return 0 if report.works else 1


def _print(text: str) -> None:
    """Print a text, unless the program that reads the output has exited."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        discard_stdout()


def _make_parser() -> argparse.ArgumentParser:
    """Return the parser for the commands doctor, build and check, and for their options."""
    parser = argparse.ArgumentParser(
        prog="python -m kernels", description="Manage the operators in C++ and CUDA."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def add_command(name: str, text: str) -> argparse.ArgumentParser:
        subparser = commands.add_parser(name, help=text)
        subparser.add_argument("--json", action="store_true", help="print one JSON object")
        return subparser

    doctor = add_command("doctor", "report what works on this machine and how to fix the rest")
    build = add_command(
        "build", "compile operators ahead of time, for containers and offline machines"
    )
    check = add_command(
        "check", "compare operators in Numba, C++ and CUDA with their references"
    )

    device_help = "the device that must work (default: %(default)s)"
    for command in (doctor, check):
        command.add_argument(
            "--device", choices=("cpu", "cuda"), default="cpu", help=device_help
        )
    names_help = "an operator, or a folder of kernels/ops (default: all)"
    for command in (build, check):
        command.add_argument("names", metavar="op", nargs="*", help=names_help)
    build_device_help = (
        "the device to compile for (default: all that the installed torch was built for)"
    )
    build.add_argument("--device", choices=("cpu", "cuda", "all"), help=build_device_help)
    arch_help = (
        "a GPU architecture to compile for, such as 8.0, 9.0a or 9.0+PTX; repeatable "
        "(default: $TORCH_CUDA_ARCH_LIST, else this machine's GPUs)"
    )
    build.add_argument(
        "--arch", dest="archs", action="append", default=[], metavar="X.Y", help=arch_help
    )
    portable_help = "compile for any processor of this architecture, not only for this one"
    build.add_argument("--portable", action="store_true", help=portable_help)
    return parser


if __name__ == "__main__":
    sys.exit(main())
