"""The command line: python -m tetris COMMAND, or cem-tetris COMMAND."""

import gc
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from kernels.support.interrupts import one_line_interrupts
from kernels.version import __version__

with one_line_interrupts():
    from tetris.commands.command_line import Parser, one_of, run

COMMANDS = {
    "train": "train a controller with the cross-entropy method",
    "evaluate": "score controllers by the games they play",
    "estimate": "estimate the scores of controllers that rarely lose",
    "solve": "solve a small board: the lines of perfect play",
    "explain": "explain what a controller plays on a board of yours",
    "play": "play against a controller in a browser",
    "watch": "watch a controller play, in the terminal, as a movie or as a page",
    "report": "write the page of a training run, or compare several",
}


def main() -> NoReturn:
    """Run the command that the first argument names."""
    run(_command)


def script(command: str, name: str) -> Callable[[], int]:
    """Return the main function of a command, and run it if the caller is the main program.

    ``name`` is the caller's ``__name__``, which is ``"__main__"`` in the main program.
    """
    with one_line_interrupts():
        main_function = _main_of(command)
    if name == "__main__":
        run(main_function)
    return main_function


def _command() -> int:
    """Run the command that the first argument names, such as ``train``; return its exit status.

    Each command has its own parser, which parses the remaining arguments.
    """
    name = Path(sys.argv[0]).name
    program = "python -m tetris" if name == "__main__.py" else name
    examples = [f"{program} {command}  # {text}" for command, text in COMMANDS.items()]
    parser = Parser(
        prog=program,
        description="\n\n".join(examples),
        usage="%(prog)s COMMAND [option ...]",
    )
    parser.add_argument("--version", action="version", version=f"cem-tetris {__version__}")
    parser.add_argument(
        "command",
        type=one_of("command", COMMANDS),
        metavar="COMMAND",
        help="has a --help of its own",
    )
    sys.argv[0] = program  # Error messages begin with this name.
    # Parse the name of the command alone. Without arguments, print the help.
    first_argument = sys.argv[1:2] or ["--help"]
    command = parser.parse_args(first_argument).command
    # For the parser of the command, "python -m tetris train" is the name of the program, and
    # its arguments begin after it.
    sys.argv[:2] = [f"{program} {command}"]
    main_function = _main_of(command)
    return int(main_function())


def _main_of(command: str) -> Callable[[], int]:
    """Import a command, and return its main function."""
    # The objects that modules create on import exist until the program ends. So the garbage
    # collector need not examine them.
    gc.disable()
    main_function: Callable[[], int] = importlib.import_module(
        f"tetris.commands.{command}"
    ).main
    gc.freeze()
    gc.enable()
    return main_function


if __name__ == "__main__":
    main()
