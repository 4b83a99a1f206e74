"""The command line: checked arguments, one-line error messages, exit statuses."""

import argparse
import math
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

from kernels import BuildError
from kernels.support.files import discard_stdout, prepare_streams
from kernels.support.interrupts import one_line_interrupts
from kernels.support.names import did_you_mean, unknown_name
from kernels.support.printable import printable

BAD_INPUT = 2
"""Exit status after a wrong argument or file."""

Number = TypeVar("Number", int, float)
# Parts of the texts with which torch reports that memory is full.
_FULL_MEMORY = ("allocate memory", "bad_alloc", "out of memory")
_silenced: tuple[int, TextIO] | None = None
"""On a silenced rank, its number and its original stderr; None on rank 0, which prints."""


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Wraps paragraphs to the terminal's width; paragraphs of commands keep their lines."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, max_help_position=28, **options)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Return a description with wrapped paragraphs; those of commands keep their lines."""
        paragraphs = []
        for paragraph in map(textwrap.dedent, re.split(r"\n\s*\n", text.strip("\n"))):
            # "cem-tetris 1.0" is the version, not a command.
            if re.match(r"(python|cem-tetris) \D", paragraph):
                paragraphs.append(textwrap.indent(paragraph.rstrip(), "  "))
            else:
                paragraphs.append(textwrap.fill(" ".join(paragraph.split()), width))
        return "\n\n".join(paragraphs)


class Parser(argparse.ArgumentParser):
    """An argument parser with one-line errors and hints for misspelt options.

    Its help wraps the description to the width of the terminal; commands keep their lines.
    """

    def __init__(self, **options: Any) -> None:
        """Set up as `argparse.ArgumentParser` does."""
        super().__init__(
            **{"prog": Path(sys.argv[0]).name, "formatter_class": _HelpFormatter, **options}
        )

    def error(self, message: str) -> NoReturn:
        """Print the message, with the option that was probably meant; exit with status 2."""
        unknown = re.match(r"unrecognized arguments: (-[^\s=]+)", message)
        if unknown:
            message += did_you_mean(unknown[1], self._option_string_actions)
        fail(message)


def fail(error: object) -> NoReturn:
    """Print an error as one line on stderr, and exit with status 2.

    If several processes, called ranks, work together, wrong input causes the same error in all
    of them. Only rank 0 prints it. An error that occurs in one rank alone is printed by this
    rank, after its number.
    """
    stream = sys.stderr  # On every rank but rank 0 this is the null device.
    prefix = ""
    # `_silenced` is None on rank 0. On another rank it is the rank and the original stderr.
    if _silenced and _is_of_this_rank(error):
        rank, stream = _silenced
        prefix = f"rank {rank}: "
    # str() of an OSError would begin with its number, such as "[Errno 2]".
    if isinstance(error, OSError) and error.strerror:
        error = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    program = Path(sys.argv[0]).name
    line = printable(" ".join(str(error).split()))
    with suppress(OSError):  # The terminal may have been closed.
        print(f"{prefix}{program}: error: {line}", file=stream, flush=True)
    raise SystemExit(BAD_INPUT)


def _is_of_this_rank(error: object) -> bool:
    """Return whether an error may have occurred in this process, but not in other ranks.

    An error of a file or a build is one, but a `RanksError` means that another rank has failed.
    """
    if not isinstance(error, (OSError, BuildError)):
        return False
    from kernels.support.ranks import RanksError  # Imported here: it imports torch.

    return not isinstance(error, RanksError) and not isinstance(error.__cause__, RanksError)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Print an error of input, files or the machine as one line, and exit with status 2.

    Use the context only around code that reads or checks input, or writes output. Elsewhere a
    ValueError is a bug of the program, and its traceback is needed.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except (ValueError, TypeError, OSError, BuildError) as error:
        fail(error)


def run(main: Callable[[], int]) -> NoReturn:
    """Run the main function of a command, and exit with the status that it returns.

    Ctrl-C, a full disk, full memory and a failed build print one line instead of a traceback.
    If the reader of a pipe has closed it, nothing is printed.
    """
    prepare_streams()
    try:
        with one_line_interrupts():
            status = main()
            sys.stdout.flush()
    except BrokenPipeError:  # The reader of the pipe, such as `head`, has read enough lines.
        status = 0
    except (OSError, BuildError) as error:
        fail(error)
    except (MemoryError, RuntimeError) as error:
        if not _is_full_memory(error):
            raise
        fail(f"out of memory: {str(error) or 'none is left'}")
    finally:
        # At exit Python flushes stdout, and reports an error if it is a closed pipe.
        discard_stdout()
    raise SystemExit(status)


def _is_full_memory(error: Exception) -> bool:
    """Return whether an error means that the memory is full."""
    # torch raises a RuntimeError then. Only its text says why.
    says_full_memory = any(text in str(error) for text in _FULL_MEMORY)
    return isinstance(error, MemoryError) or says_full_memory


@contextmanager
def joined_ranks() -> Iterator[None]:
    """Connect the processes that ``torchrun`` started, called ranks, in a ``with`` block.

    Inside the block only rank 0 prints. The output of the other ranks is dropped, except for
    some errors, which `fail` prints. If the ranks cannot connect, the command prints one line
    and exits. A process that ``torchrun`` did not start is rank 0, and has no other ranks.
    """
    global _silenced
    from kernels.support import ranks  # Imported here: it imports torch.

    with ExitStack() as stack:
        with one_line_errors():
            stack.enter_context(ranks.joined())
        rank = ranks.rank()
        if rank > 0:
            # `fail` prints some errors on the original stderr, so store it first.
            _silenced = (rank, sys.stderr)
            null = stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
            stack.enter_context(redirect_stdout(null))
            stack.enter_context(redirect_stderr(null))
        try:
            yield
        finally:
            _silenced = None


def one_of(kind: str, known: Iterable[str]) -> Callable[[str], str]:
    """Return a function, the ``type`` of an argument, that accepts only known names.

    For any other text the function raises an error that suggests a similar name.
    """
    names = tuple(known)

    def read(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(str(unknown_name(kind, text, names)))
        return text

    return read


def path_ending(*suffixes: str) -> Callable[[str], Path]:
    """Return a function, the ``type`` of an argument, that accepts only these suffixes."""

    def read(text: str) -> Path:
        path = Path(text)
        if path.suffix.lower() not in suffixes:
            raise argparse.ArgumentTypeError(
                f"expected a file name that ends in {', '.join(suffixes)}, got {text!r}"
            )
        return path

    return read


def between(low: Number, high: Number, description: str) -> Callable[[str], Number]:
    """Return a function, the ``type`` of an argument, that accepts numbers in a range.

    Args:
        low: The smallest number. The function returns numbers of the same type.
        high: The greatest number.
        description: The expected value in words, for the error message.
    """

    def read(text: str) -> Number:
        with suppress(ValueError):
            number = type(low)(text)
            if low <= number <= high:
                return number
        raise argparse.ArgumentTypeError(f"expected {description}, got {text!r}")

    return read


def up_to(high: int, low: int = 1) -> Callable[[str], int]:
    """Return a function, the ``type`` of an argument, that accepts whole numbers in a range."""
    return between(low, high, f"a whole number from {low} to {high:,}")


positive_int = between(1, 1 << 62, "a whole number from 1 to 2^62")
seed = between(0, (1 << 64) - 1, "a whole number from 0 to 2^64 - 1")
positive_seconds = between(math.ulp(0.0), sys.float_info.max, "a number of seconds above 0")
