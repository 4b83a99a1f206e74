"""The search options of a planner, and the published methods that set them."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cem.core.checks import check_real
from kernels.support.checks import check_integer
from kernels.support.names import did_you_mean, unknown_name

METHODS: dict[str, dict[str, Any]] = {
    "cem": {"num_elites": 0.1, "keep": 0.0, "execute": "mean"},
    "icem": {
        "num_elites": 0.1,
        "beta": 2.0,
        "shrink": 1.25,
        "keep": 0.3,
        "momentum": 0.1,
        "bound_handling": "clamp",
    },
    "mppi": {
        "iterations": 1,
        "num_elites": 1.0,
        "temperature": 1.0,
        "adapt_std": False,
        "keep": 0.0,
        "bound_handling": "clamp",
        "execute": "mean",
    },
    "tdmpc2": {
        "num_samples": 512,
        "iterations": 6,
        "num_elites": 0.125,
        # TD-MPC2 multiplies values by 0.5. A temperature of 2 divides costs by 2.
        "temperature": 2.0,
        "std": 2.0,
        "min_std": 0.05,
        "max_std": 2.0,
        "keep": 0.0,
        "bound_handling": "clamp",
        "execute": "sample",
    },
}
"""The options of published methods that differ from the defaults.

"cem"     P.-T. de Boer, D. Kroese, S. Mannor and R. Rubinstein, A Tutorial on the Cross-Entropy
          Method, Annals of Operations Research 134, 2005.
"icem"    C. Pinneri et al., Sample-efficient Cross-Entropy Method for Real-time Planning, CoRL
          2020, https://arxiv.org/abs/2008.06389.
"mppi"    G. Williams et al., Information Theoretic MPC for Model-Based Reinforcement Learning,
          ICRA 2017, with the weights of MPPI-Generic, https://arxiv.org/abs/2409.07563.
"tdmpc2"  N. Hansen, H. Su and X. Wang, TD-MPC2: Scalable, Robust World Models for Continuous
          Control, ICLR 2024, https://arxiv.org/abs/2310.16828. Actions are within -1 and 1.
"""

EXECUTE = ("best", "mean", "sample")
SPLINES = ("zero", "linear", "cubic")
BOUND_HANDLINGS = ("clamp_plans", "clamp", "resample")


@dataclass(frozen=True)
class Options:
    """The search options of a planner, which ``Planner`` explains."""

    num_samples: int = 100
    iterations: int = 4
    num_elites: float | None = None
    keep: float = 0.5
    shrink: float = 1.0
    momentum: float = 0.0
    temperature: float | None = None
    std: Any = None
    min_std: float = 0.0
    max_std: float = math.inf
    adapt_std: bool = True
    beta: float = 0.0
    knots: int | None = None
    spline: str = "cubic"
    bound_handling: str = "clamp_plans"
    execute: str = "best"
    gradient_steps: int = 0

    def __post_init__(self) -> None:
        """Check that each option is in its range."""
        # A range includes both of its ends, but with ``open_low`` not the lower one.
        check_integer("num_samples", self.num_samples, 4)
        check_integer("iterations", self.iterations, 1)
        if self.num_elites is not None:
            # A number of elites up to 1 is a share of the samples.
            check_real("num_elites", self.num_elites, 0.0, open_low=True)
            if self.num_elites > 1:
                check_integer("num_elites", self.num_elites, 2, self._most_elites)
        check_real("keep", self.keep, 0.0, 1.0)
        check_real("shrink", self.shrink, 1.0)
        # A momentum must be in [0, 1). With a momentum of 1 the distribution would never move.
        check_real("1 - momentum", 1.0 - self.momentum, 0.0, 1.0, open_low=True)
        if self.temperature is not None:
            check_real("temperature", self.temperature, 0.0, open_low=True)
        check_real("min_std", self.min_std, 0.0, self.max_std)
        check_real("beta", self.beta, 0.0)
        check_integer("gradient_steps", self.gradient_steps, 0)
        if self.gradient_steps > 0:
            # Gradient steps move the elites that are candidates again.
            check_real("keep with gradient_steps", self.keep, 0.0, 1.0, open_low=True)
        _check_choice("execute", self.execute, EXECUTE)
        _check_choice("spline", self.spline, SPLINES)
        _check_choice("bound_handling", self.bound_handling, BOUND_HANDLINGS)

    @cached_property
    def elite_count(self) -> int:
        """The number of elites."""
        if self.num_elites is None:
            # Few elites narrow the distribution in every iteration. In many iterations it would
            # become narrow before it has found the best plans.
            count = max(self.iterations // 3, round(0.05 * self.num_samples))
        elif self.num_elites > 1:
            return int(self.num_elites)
        else:  # a share of the samples
            count = round(self.num_elites * self.num_samples)
        return min(max(3, count), self._most_elites)

    @property
    def _most_elites(self) -> int:
        """The maximum number of elites: with equal weights half of the plans, else all."""
        return int(self.num_samples) // (2 if self.temperature is None else 1)

    @cached_property
    def num_reused(self) -> int:
        """The number of elites that are candidates again in the next iteration."""
        # Every iteration also has the mean and at least one new sample.
        room = min(self.sizes) - 2
        return min(math.ceil(self.keep * self.elite_count), room)

    @cached_property
    def sizes(self) -> list[int]:
        """The number of plans in each iteration."""
        sizes = [round(self.num_samples / self.shrink**i) for i in range(int(self.iterations))]
        least = min(2 * self.elite_count, int(self.num_samples))
        return [max(least, size) for size in sizes]


def choose_options(method: str | None, options: dict[str, Any]) -> Options:
    """Return the options of a planner.

    Args:
        method: The name of a published method whose options are used; None: the defaults.
        options: Options by name, which replace those of the method.

    Raises:
        TypeError: If an option is unknown.
        ValueError: If the method is unknown or the value of an option is invalid.
    """
    if method is not None and method not in METHODS:
        raise unknown_name("method", str(method), METHODS)
    defaults = METHODS[method] if method else {}
    for name in options:
        if name not in Options.__dataclass_fields__:
            hint = did_you_mean(name, Options.__dataclass_fields__)
            raise TypeError(f"Planner() got an unexpected option {name!r}{hint}")
    return Options(**{**defaults, **options})


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        names = " or ".join(map(repr, choices))
        raise ValueError(f"expected {names} for {name}, got {value!r}")
