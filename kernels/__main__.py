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
    from kernels.support.files import discard_stdout, open_closed_streams


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code: 1 if something does not work, else 0.

    Raises:
        SystemExit: With status 2, for arguments that the command does not know.
    """
    open_closed_streams()  # Printing would fail if the parent process had closed them.
    if clash := explain_clash():
        print(clash, file=sys.stderr)
        return 1
    parser = _make_parser()
    words = sys.argv[1:] if argv is None else argv
    # Without arguments it prints the help.
    options = vars(parser.parse_args(words or ["--help"]))
    wants_json = options.pop("json")
    command_name = options.pop("command")
    try:
        with one_line_interrupts():
            # The doctor must run even if torch cannot be imported, so it is the only module
            # that this imports for the doctor.
            command = importlib.import_module(f"kernels.ops.{command_name}")
            report = command.run(**options)
    except ValueError as error:
        parser.error(str(error))
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        text = str(report)
        if wants_json:
            text = json.dumps({"works": report.works, **asdict(report)}, indent=2)
        print(text, flush=True)
    except BrokenPipeError:
        # The program that reads the output has ended.
        discard_stdout()
    return 0 if report.works else 1


def _make_parser() -> argparse.ArgumentParser:
    """Return the parser of the commands doctor, build and check, with their options."""
    parser = argparse.ArgumentParser(
        prog="python -m kernels", description="Looks after the operators in C++ and CUDA."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def add_command(name: str, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text)
        command.add_argument("--json", action="store_true", help="print one JSON object")
        return command

    doctor = add_command("doctor", "say what works here, and what to do about the rest")
    build = add_command(
        "build", "compile operators ahead of time, for containers and offline machines"
    )
    check = add_command(
        "check", "walk operators through reference, gradcheck, Numba, C++, CUDA"
    )

    device_help = "what has to work (default: %(default)s)"
    for command in (doctor, check):
        command.add_argument(
            "--device", choices=("cpu", "cuda"), default="cpu", help=device_help
        )
    names_help = "an operator, or a folder of kernels/ops (default: every one)"
    for command in (build, check):
        command.add_argument("names", metavar="op", nargs="*", help=names_help)
    devices_help = "(default: all that the installed torch was built for)"
    build.add_argument("--device", choices=("cpu", "cuda", "all"), help=devices_help)
    arch_help = (
        "a GPU to compile for, such as 8.0, 9.0a or 9.0+PTX; may be given several times "
        "(default: $TORCH_CUDA_ARCH_LIST, else this machine's GPUs)"
    )
    build.add_argument(
        "--arch", dest="archs", action="append", default=[], metavar="X.Y", help=arch_help
    )
    portable_help = "for any processor of this kind of machine, not for this very one"
    build.add_argument("--portable", action="store_true", help=portable_help)
    return parser


if __name__ == "__main__":
    sys.exit(main())
