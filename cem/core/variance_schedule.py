"""Extra variance, which is added to the elites' so that the search does not freeze too early.

It is ``Z_t`` of equation (2) of ``cem.optimizer``, in the squared unit of the parameters; the
first ``tell()`` adds ``Z_0``. A schedule can be written as text:

    none              Z_t = 0, the plain method
    constant:A        Z_t = A, 4 by default: the search never converges
    linear:A,B        Z_t = max(A - t / B, 0), 5 and 10 by default: gone after A * B generations
    hyperbolic:A      Z_t = A / (t + 1), 20 by default: falls fast, never to zero

Sources:
    I. Szita, A. Lorincz: Learning Tetris Using the Noisy Cross-Entropy Method. Neural
        Computation 18(12), 2936-2941, 2006: no noise, the constant ``Z = 4``, and the linear
        decrease ``Z_t = max(5 - t / 10, 0)``, the best of the three.
    C. Thiery, B. Scherrer: Improvements on Learning Tetris with Cross Entropy. ICGA Journal
        32(1), 23-33, 2009: the influence of the noise with better features. Their program
        MDPTetris offers the three above and the hyperbolic decrease ``a / t``, with the
        defaults 4, (5, 10) and 20.
"""

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cem.core.checks import check_real
from kernels.support.names import did_you_mean

_FORMS = "none, constant:A, linear:A,B, hyperbolic:A"
_DEFAULTS = {"none": (), "constant": (4.0,), "linear": (5.0, 10.0), "hyperbolic": (20.0,)}

VarianceSchedule = Callable[[int], float]
"""Anything that maps the generation ``t = 0, 1, ...`` to the variance ``Z_t >= 0``."""


@dataclass(frozen=True)
class NamedSchedule:
    """A schedule from the literature, by its name and numbers in the module's table."""

    name: str = "none"
    numbers: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Check the numbers, and add the defaults of those that are missing."""
        defaults = _DEFAULTS[self.name]
        if len(self.numbers) > len(defaults):
            got = len(self.numbers)
            raise ValueError(f"expected at most {len(defaults)} numbers, got {got}")
        numbers = (*self.numbers, *defaults[len(self.numbers) :])
        # The linear schedule divides by B, which must not be 0.
        for name, number in zip("AB", numbers, strict=False):
            check_real(name, number, 0.0, open_low=name == "B")
        object.__setattr__(self, "numbers", tuple(map(float, numbers)))

    def __call__(self, generation: int) -> float:
        """Return ``Z_t`` for ``t = generation``."""
        if self.name == "none":
            return 0.0
        if self.name == "linear":
            a, b = self.numbers
            return max(a - generation / b, 0.0)
        (a,) = self.numbers
        return a if self.name == "constant" else a / (generation + 1)

    def __str__(self) -> str:
        numbers = ",".join(map(repr, self.numbers))
        return f"{self.name}:{numbers}" if numbers else self.name


def parse_variance_schedule(text: str) -> NamedSchedule:
    """Return the schedule that a text names, in upper or lower case; see the module's table.

    Raises:
        ValueError: If the text has another form.
    """
    name, _, numbers = text.strip().lower().partition(":")
    message = f"expected a schedule of the form {_FORMS}, got {text!r}"
    if name not in _DEFAULTS:
        raise ValueError(message + did_you_mean(name, _DEFAULTS))
    try:
        values = map(float, numbers.split(",")) if numbers else ()
        return NamedSchedule(name, tuple(values))
    except ValueError as error:
        raise ValueError(f"{message} ({error})") from None


def describe_variance_schedule(schedule: VarianceSchedule | None) -> str:
    """Return the text of a schedule, or the qualified name of a callable.

    Checkpoints compare this text, so two callables of the same name count as the same schedule.
    """
    if schedule is None or isinstance(schedule, NamedSchedule):
        return str(schedule or NamedSchedule())
    return describe_callable(schedule)


def describe_callable(function: Callable[..., Any]) -> str:
    """Return a text by which a callable can be recognised: its qualified name.

    All lambdas of a function have the same name, so a digest of the code follows it. The text
    of a ``functools.partial`` also contains its arguments, if they are numbers or strings.
    """
    if isinstance(function, partial):
        arguments = [*function.args, *sorted(function.keywords.items())]
        return f"{describe_callable(function.func)} of {_plain_values(arguments)}"
    # An object with a method ``__call__`` has the name of its type.
    named = function if hasattr(function, "__qualname__") else type(function)
    name = f"{named.__module__}.{named.__qualname__}"
    if name.endswith("<lambda>"):
        code = function.__code__
        names_and_constants = (code.co_names, _plain_values(code.co_consts))
        content = code.co_code + repr(names_and_constants).encode()
        name += f" {zlib.crc32(content):08x}"
    return name


def _plain_values(values: Iterable[Any]) -> list[Any]:
    """Return the values whose text is the same in every process: numbers, strings, tuples."""
    return [value for value in values if isinstance(value, (int, float, str, tuple))]


def extend_table(
    table: Sequence[float],
    schedule: VarianceSchedule,
    generations: int,
    ahead: int = 64,
) -> list[float]:
    """Return a longer table of the extra variance Z_t for t = 0, 1, ...

    Args:
        table: The values that are known already. The result begins with them.
        schedule: Maps t to Z_t >= 0. For a constant schedule the table has a single number.
        generations: The number of generations that the table must cover.
        ahead: The smallest length of the result. The length is also at least twice
            ``generations``. This is more than necessary, so that the table is rarely extended.

    Raises:
        Exception: What the schedule raises for one of the ``generations``. An error for a later
            generation ends the table instead.
    """
    if isinstance(schedule, NamedSchedule) and schedule.name == "constant":
        # The last value of a table is used for all later generations.
        return [schedule(0)]
    longer = list(table)
    for t in range(len(table), max(ahead, 2 * generations)):
        try:
            variance = check_real(f"the extra variance of generation {t}", schedule(t), 0.0)
        except Exception:
            # A schedule may raise any error, such as the IndexError of a list that is too
            # short. It only matters for the generations that must be covered. The search may
            # never reach the later ones.
            if t < generations:
                raise
            break
        longer.append(variance)
    return longer
