"""Noise schedules: variance added to the elites' variance, so that the search does not freeze too early.

The noisy cross-entropy method draws the next generation with the variance

    sigma^2_{t+1} = (1 / |elites|) * sum over the elites of (x - mu_{t+1})^2 + Z_t        for every dimension,

where ``t`` counts the generations told before this one: ``Z_0`` is added by the first ``tell()``. ``Z_t`` is
a variance: its unit is that of the searched weights, squared.

Sources:
    I. Szita, A. Lorincz: Learning Tetris Using the Noisy Cross-Entropy Method. Neural Computation 18(12),
        2936-2941, 2006: no noise, the constant ``Z = 4``, and the linear decrease
        ``Z_t = max(5 - t / 10, 0)``, the best of the three.
    C. Thiery, B. Scherrer: Improvements on Learning Tetris with Cross Entropy. ICGA Journal 32(1), 23-33,
        2009: the influence of the noise with better features. Their program MDPTetris offers the three
        above and the hyperbolic decrease ``a / t``, with the defaults 4, (5, 10) and 20.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass

from cem._checks import check_real
from kernels.support.names import did_you_mean

_LEAST_TABLE = 64  # generations

NoiseSchedule = Callable[[int], float]
"""Anything that maps the generation ``t = 0, 1, ...`` to the variance ``Z_t >= 0``."""


@dataclass(frozen=True)
class NoNoise:
    """``Z_t = 0``: the plain cross-entropy method."""

    def __call__(self, generation: int) -> float:
        """Return ``Z_t`` for ``t = generation``."""
        return 0.0


@dataclass(frozen=True)
class ConstantNoise:
    """``Z_t = a``: the search never converges (Szita & Lorincz 2006 use ``a = 4``).

    Args:
        a: The variance added in every generation, finite, ``>= 0``.
    """

    a: float = 4.0

    def __post_init__(self) -> None:
        """Check the parameter."""
        check_real("a of the noise", self.a, 0.0)

    def __call__(self, generation: int) -> float:
        """Return ``Z_t`` for ``t = generation``."""
        return self.a


@dataclass(frozen=True)
class LinearNoise:
    """``Z_t = max(a - t / b, 0)``: gone after ``a * b`` generations (Szita & Lorincz: ``a = 5, b = 10``).

    Args:
        a: The variance added in the first generation, finite, ``>= 0``.
        b: The generations in which the variance falls by 1, finite, ``> 0``.
    """

    a: float = 5.0
    b: float = 10.0

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_real("a of the noise", self.a, 0.0)
        check_real("b of the noise", self.b, 0.0, open_low=True)

    def __call__(self, generation: int) -> float:
        """Return ``Z_t`` for ``t = generation``."""
        return max(self.a - generation / self.b, 0.0)


@dataclass(frozen=True)
class HyperbolicNoise:
    """``Z_t = a / (t + 1)``: falls fast, never to zero (MDPTetris has ``a / t``).

    Args:
        a: The variance added in the first generation, finite, ``>= 0``.
    """

    a: float = 20.0

    def __post_init__(self) -> None:
        """Check the parameter."""
        check_real("a of the noise", self.a, 0.0)

    def __call__(self, generation: int) -> float:
        """Return ``Z_t`` for ``t = generation``."""
        return self.a / (generation + 1)


_BY_NAME: dict[str, type[NoNoise | ConstantNoise | LinearNoise | HyperbolicNoise]] = {
    "none": NoNoise,
    "constant": ConstantNoise,
    "linear": LinearNoise,
    "hyperbolic": HyperbolicNoise,
}


def parse_noise(text: str) -> NoiseSchedule:
    """Read a schedule from a line of text such as a command-line option.

    Args:
        text: ``"none"``, ``"constant:A"``, ``"linear:A,B"`` or ``"hyperbolic:A"``; numbers left out take the
            defaults of the literature (see the module). Case does not matter.

    Returns:
        The schedule; ``describe_noise`` turns it back into text.

    Raises:
        ValueError: If the name is unknown, there are too many numbers, or one is no number or out of range.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected a schedule as text, got {text!r}")
    name, _, numbers = text.strip().lower().partition(":")
    forms = "none, constant:A, linear:A,B, hyperbolic:A"
    if name not in _BY_NAME:
        hint = did_you_mean(name, _BY_NAME)
        raise ValueError(f"expected a noise schedule of the form {forms}, got {text!r}{hint}")
    try:
        values = [float(number) for number in numbers.split(",")] if numbers else []
        return _BY_NAME[name](*values)
    except TypeError:  # more numbers than the schedule has parameters
        raise ValueError(f"expected a noise schedule of the form {forms}, got {text!r}") from None
    except ValueError as error:
        raise ValueError(f"expected a noise schedule of the form {forms}, got {text!r} ({error})") from None


def describe_noise(noise: NoiseSchedule) -> str:
    """Return the text that ``parse_noise`` reads as a schedule, or the qualified name of a custom callable.

    Checkpoints compare this text, so two custom callables of one name count as the same schedule.

    Args:
        noise: A schedule of this module or any callable from the generation to a variance.
    """
    for name, kind in _BY_NAME.items():
        if isinstance(noise, kind):
            numbers = ",".join(repr(float(value)) for value in astuple(noise))
            return f"{name}:{numbers}" if numbers else name
    named = noise if hasattr(noise, "__qualname__") else type(noise)
    return f"{named.__module__}.{named.__qualname__}"


def resolve_noise(noise: NoiseSchedule | str | None) -> NoiseSchedule:
    """Return the schedule of ``None`` (no noise), a text (see ``parse_noise``) or a callable.

    Args:
        noise: ``None``, text, or a callable from the generation ``t >= 0`` to the variance ``Z_t >= 0``.

    Raises:
        TypeError: If it is none of these.
        ValueError: If the text names no schedule.
    """
    if noise is None:
        return NoNoise()
    if isinstance(noise, str):
        return parse_noise(noise)
    if not callable(noise):
        raise TypeError(f"expected None, a text or a callable for extra_variance, got {type(noise).__name__}")
    return noise


class VarianceTable:
    """The extra variance of the first generations, computed ahead of time.

    Attributes:
        covered: The generations that the table holds; infinity where its last entry stands for all later.
    """

    def __init__(self, schedule: NoiseSchedule) -> None:
        """Set the schedule; nothing is computed yet."""
        self.covered = math.inf if isinstance(schedule, NoNoise) else 0
        self._schedule = schedule
        self._values: list[float] = []

    def extended(self, generations: int, ahead: int = 0) -> list[float]:
        """Return a table of at least ``generations``, if possible of ``ahead``, and of some to come.

        Raises:
            TypeError: If the schedule gives no number for one of the first ``generations``.
            ValueError: If it gives no variance.
            Exception: Whatever the schedule raises.
        """
        while self.covered < max(_LEAST_TABLE, 2 * generations, ahead):
            t = len(self._values)
            try:
                found = self._schedule(t)
                self._values.append(check_real(f"the extra variance of generation {t}", found, 0.0))
            except Exception:  # of the schedule, too: it may be a list's
                if t < generations:
                    raise
                break  # the search may never come to that generation
            self.covered = math.inf if isinstance(self._schedule, ConstantNoise) else t + 1
        return self._values
