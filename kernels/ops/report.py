"""The report of a command of ``python -m kernels``: outcomes, printed as a table or as JSON."""

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.loader.toolchain import BuildError, CompilerMissingError

OK, ABSENT, FAILED = "ok", "absent", "FAILED"


class Unavailable(Exception):  # noqa: N818  (no error where it is not needed)
    """Something that a question needs is not here."""


@dataclass(frozen=True)
class Outcome:
    """The answer to one question."""

    name: str  # what was looked at
    result: str  # "FAILED", or a word for success
    note: str  # the answer, or what is wrong and what to do about it
    seconds: float  # a build included
    error: float | None = None  # the largest difference, where something was compared


@dataclass(frozen=True)
class Report:
    """All outcomes, in order."""

    outcomes: Sequence[Outcome]

    @property
    def works(self) -> bool:
        """Whether nothing failed."""
        return all(outcome.result != FAILED for outcome in self.outcomes)

    def __str__(self) -> str:
        """The report as a table."""
        width = max(len(outcome.name) for outcome in self.outcomes)
        lines = []
        for outcome in self.outcomes:
            note = outcome.note
            if outcome.error is not None:
                note = f"error {outcome.error:.1e}, {note}"
            lines.append(
                f"{outcome.result:<7}  {outcome.name:<{width}}  "
                f"{outcome.seconds:6.1f} s  {note}"
            )
        return "\n".join([*lines, "", "works" if self.works else "does not work"])


def ask(
    name: str,
    question: Callable[[], str | tuple[float, str]],
    *,
    needed: bool = True,
    excused: tuple[type[Exception], ...] = (Unavailable, CompilerMissingError),
) -> Outcome:
    """Ask a question, and return the answer or the error as an outcome.

    The answer is a note, or the largest difference and a note. An error is a failure, unless
    the answer is not needed and the error is one of ``excused``.
    """
    began = time.perf_counter()
    result = OK
    difference = None
    try:
        answer = question()
        if isinstance(answer, str):
            note = answer
        else:
            difference, note = answer
    except Exception as error:
        # torch, Numba and kernels can break in any way, and the other answers are still of use.
        result = ABSENT if isinstance(error, excused) and not needed else FAILED
        has_remedy = isinstance(error, (Unavailable, BuildError))
        note = str(error) if has_remedy else one_line(error)
    return Outcome(name, result, note, round(time.perf_counter() - began, 3), difference)


def one_line(problem: Exception) -> str:
    """Return an error's type, the first line of its text, and where it was raised."""
    text = next((line for line in str(problem).splitlines() if line.strip()), "")
    place = traceback.extract_tb(problem.__traceback__)[-1]
    return (
        f"{type(problem).__name__}: {text} ({Path(place.filename).name}, line {place.lineno})"
    )
