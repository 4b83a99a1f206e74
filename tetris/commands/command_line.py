"""The command line: checked arguments, errors in one line, exit statuses."""

import argparse
import contextlib
import io
import math
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

from kernels import BuildError
from kernels.support.files import discard_stdout, open_closed_streams
from kernels.support.interrupts import one_line_interrupts
from kernels.support.names import did_you_mean, unknown_name
from kernels.support.printable import printable

BAD_INPUT = 2
"""Exit status after a wrong argument or file."""

Number = TypeVar("Number", int, float)
_FULL_MEMORY = ("allocate memory", "bad_alloc", "out of memory")  # Parts of torch's errors.
_silenced: tuple[int, TextIO] | None = None
"""The number of this rank and its stderr; None for the first rank, which prints."""


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Fills paragraphs to the terminal's width; paragraphs of commands keep their lines."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, max_help_position=28, **options)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Return a description with filled paragraphs; those of commands keep their lines."""
        paragraphs = []
        for paragraph in map(textwrap.dedent, re.split(r"\n\s*\n", text.strip("\n"))):
            # "cem-tetris 1.0" is no command, but the version.
            if re.match(r"(python|cem-tetris) \D", paragraph):
                paragraphs.append(textwrap.indent(paragraph.rstrip(), "  "))
            else:
                paragraphs.append(textwrap.fill(" ".join(paragraph.split()), width))
        return "\n\n".join(paragraphs)


class Parser(argparse.ArgumentParser):
    """An argument parser with errors in one line and hints for misspelt options.

    Its help is the description, filled to the width of the terminal; commands keep their lines.
    """

    def __init__(self, **options: Any) -> None:
        """Set up as `argparse.ArgumentParser` does."""
        super().__init__(
            **{"prog": Path(sys.argv[0]).name, "formatter_class": _HelpFormatter, **options}
        )

    def error(self, message: str) -> NoReturn:
        """Print the line, with the option that was probably meant, and exit with status 2."""
        unknown = re.match(r"unrecognized arguments: (-[^\s=]+)", message)
        if unknown:
            message += did_you_mean(unknown[1], self._option_string_actions)
        fail(message)


def fail(error: object) -> NoReturn:
    """Print an error as one line on stderr, and exit with status 2.

    If several processes work together, which are called ranks, rank 0 prints every error. The
    other ranks are silenced, because an error of the input occurs in all of them. They print
    only errors of files and builds, which may occur in one process alone, with the number of
    the rank in front.
    """
    stream = sys.stderr
    prefix = ""
    # `_silenced` has the number and the stderr of this rank; it is None for rank 0.
    if _silenced and isinstance(error, (OSError, BuildError)):
        from kernels.support.ranks import RanksError  # It imports torch.

        # A RanksError says that another rank has gone, which prints its own error.
        is_of_other_rank = isinstance(error, RanksError)
        is_caused_by_other_rank = isinstance(error.__cause__, RanksError)
        if not is_of_other_rank and not is_caused_by_other_rank:
            rank, stream = _silenced
            prefix = f"rank {rank}: "
    # The text of an OSError would begin with its number, "[Errno 2]".
    if isinstance(error, OSError) and error.strerror:
        error = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    program = Path(sys.argv[0]).name
    line = printable(" ".join(str(error).split()))
    with contextlib.suppress(OSError):  # The terminal may be closed.
        print(f"{prefix}{program}: error: {line}", file=stream, flush=True)
    raise SystemExit(BAD_INPUT)


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Print errors of input, files and machine in the context as one line; exit with status 2.

    The context must only read or check input, or write output. Elsewhere a ValueError is an
    error of the program itself, which needs its traceback.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except (ValueError, TypeError, OSError, BuildError) as error:
        fail(error)


def run(main: Callable[[], int]) -> NoReturn:
    """Run the main function of a command, and exit with the status that it returns.

    After Ctrl-C, a full disk, full memory or a failed build there is one line instead of a
    traceback, and nothing at all if the reader of a pipe has closed it.
    """
    open_closed_streams()
    # A terminal may lack a character; then print its escape sequence.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with one_line_interrupts():
            status = main()
            sys.stdout.flush()
    except BrokenPipeError:  # The reader of the pipe, such as `head`, has enough lines.
        status = 0
    except (OSError, BuildError) as error:
        fail(error)
    except (MemoryError, RuntimeError) as error:
        # torch has no error type of its own for full memory on the CPU, only texts.
        has_text = any(text in str(error) for text in _FULL_MEMORY)
        is_memory_full = isinstance(error, MemoryError) or has_text
        if not is_memory_full:
            raise
        fail(f"out of memory: {str(error) or 'none is left'}")
    finally:
        discard_stdout()
    raise SystemExit(status)


@contextlib.contextmanager
def joined_ranks() -> Iterator[None]:
    """Connect the processes that ``torchrun`` started, the ranks, in a context.

    Only rank 0 prints. The output of the other ranks is dropped, except for some errors, which
    `fail` prints. If the processes cannot reach each other, the command ends with an error in
    one line. In a process that ``torchrun`` did not start, nothing changes.
    """
    global _silenced
    from kernels.support import ranks  # It imports torch.

    with contextlib.ExitStack() as stack:
        with one_line_errors():
            stack.enter_context(ranks.joined())
        rank = ranks.rank()
        if rank > 0:
            # `fail` still needs the stderr of this process, so it is stored before it is
            # replaced.
            _silenced = rank, sys.stderr
            null = stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(null))
            stack.enter_context(contextlib.redirect_stderr(null))
        try:
            yield
        finally:
            _silenced = None


def one_of(kind: str, known: Iterable[str]) -> Callable[[str], str]:
    """Return a function, the ``type`` of an argument, that accepts only known names.

    Its error for another text suggests a similar name.
    """
    names = tuple(known)

    def read(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(str(unknown_name(kind, text, names)))
        return text

    return read


def path_ending(*suffixes: str) -> Callable[[str], Path]:
    """Return a function, the ``type`` of an argument, that accepts files of these suffixes."""

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
        low: The least number; its type is the type of the numbers.
        high: The greatest number.
        description: What the error says that is expected.
    """

    def read(text: str) -> Number:
        with contextlib.suppress(ValueError):
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
