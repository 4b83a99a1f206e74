"""The report of a command of ``python -m kernels``: outcomes, printed as a table or as JSON."""

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.loader.toolchain import BuildError, CompilerMissingError

OK, ABSENT, FAILED = "ok", "absent", "FAILED"


class Unavailable(Exception):  # noqa: N818  (no error where it is not needed)
    """Raised by a check if something that it needs is missing."""


@dataclass(frozen=True)
class Outcome:
    """The result of one check."""

    name: str  # what was checked
    result: str  # "FAILED", "absent", or a word for success
    note: str  # the answer, or what is wrong and how to fix it
    seconds: float  # including a build
    error: float | None = None  # the largest error, if the check is a comparison


@dataclass(frozen=True)
class Report:
    """All outcomes, in order."""

    outcomes: Sequence[Outcome]

    @property
    def works(self) -> bool:
        """Whether no check failed."""
        return all(outcome.result != FAILED for outcome in self.outcomes)

    def __str__(self) -> str:
        """Return a table of the outcomes, and a last line that says whether all works."""
        name_width = max(len(outcome.name) for outcome in self.outcomes)
        lines = []
        for outcome in self.outcomes:
            note = outcome.note
            if outcome.error is not None:
                note = f"error {outcome.error:.1e}, {note}"
            lines.append(
                f"{outcome.result:<7}  {outcome.name:<{name_width}}  "
                f"{outcome.seconds:6.1f} s  {note}"
            )
        # `works` is False if an outcome has failed.
        conclusion = "works" if self.works else "does not work"
        return "\n".join([*lines, "", conclusion])


def run_check(
    name: str,
    check: Callable[[], str | tuple[float, str]],
    *,
    needed: bool = True,
    absence_errors: tuple[type[Exception], ...] = (Unavailable, CompilerMissingError),
) -> Outcome:
    """Run a check of one part of the installation, and return its outcome.

    Args:
        name: what is checked.
        check: returns a note or, for a comparison, the largest error and a note.
        needed: whether the part must be there.
        absence_errors: the types of errors that mean that the part is absent. This is a failure
            if the part is needed.
    """
    start = time.perf_counter()
    result = OK
    largest_error = None
    try:
        answer = check()
        if isinstance(answer, str):
            note = answer
        else:
            largest_error, note = answer
    except Exception as error:
        # Report any error instead of raising it, because the other checks are still useful.
        is_absent = isinstance(error, absence_errors)
        result = ABSENT if is_absent and not needed else FAILED
        # The message of our own errors says how to fix the problem, so it is not shortened.
        has_remedy = isinstance(error, (Unavailable, BuildError))
        note = str(error) if has_remedy else one_line(error)
    seconds = round(time.perf_counter() - start, 3)
    return Outcome(name, result, note, seconds, largest_error)


def one_line(problem: Exception) -> str:
    """Return an error's type, the first line of its text, and where it was raised."""
    text = next((line for line in str(problem).splitlines() if line.strip()), "")
    place = traceback.extract_tb(problem.__traceback__)[-1]
    return (
        f"{type(problem).__name__}: {text} ({Path(place.filename).name}, line {place.lineno})"
    )
