"""The settings of the method: how the elites of a generation change the distribution."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from cem.core.bounds import BoundHandling
from cem.core.checks import check_real
from cem.core.variance_schedule import VarianceSchedule, parse_variance_schedule
from cem.families.family import Family
from kernels.support.checks import check_flags, check_integer
from kernels.support.names import unknown_name

_LARGEST_FULL = 200  # with more parameters, the default is a diagonal covariance
MIN_ELITES = 2  # a single elite has no variance: the search would stop

Weights = Literal["log", "equal"]
Covariance = Literal["diagonal", "full"]
VarianceAbout = Literal["old_mean", "new_mean"]
_CHOICES = {
    "weights": Weights,
    "covariance": Covariance,
    "variance_about": VarianceAbout,
    "bound_handling": BoundHandling,
}


@dataclass(frozen=True, kw_only=True)
class CEMConfig:
    """How the distribution moves; ``CrossEntropyMethod`` has the equations.

    ``CEMConfig.cma()``, the default of a search, is CMA-ES. ``CEMConfig.classic()`` is the
    method as published. ``CEMConfig()`` is a diagonal update whose variance is about the old
    mean.

    Examples:
        >>> from cem import CEMConfig
        >>> CEMConfig.cma(covariance="diagonal").paths
        True

    Attributes:
        elite_fraction: The fraction of the population that are elites, in (0, 1]; their number
            is rounded up and is at least 2. None, without ``num_elites``: 0.2, or 0.5 with
            ``paths``.
        num_elites: The number of elites, from 2 to the population size, instead of a fraction.
        weights: ``"log"``: proportional to ``log(K + 1/2) - log(k)`` for rank k of K, as in
            CMA-ES, or ``"equal"``, as in the literature of the method.
        covariance: ``"diagonal"``, or ``"full"``, which needs dim^2 numbers and dim^3
            operations per generation.
        paths: Whether evolution paths adapt covariance and step size, as in CMA-ES; see
            ``kernels.ops.cma_update``. ``variance_about`` and ``std_smoothing`` are then not
            used.
        variance_about: The centre of the elites' variance. ``"old_mean"`` is ``mu_t``, as in
            CMA-ES. ``"new_mean"`` is ``m``, as in the literature of the method; with it the
            search collapses if the slope is steeper than the distribution is wide, so it is
            best combined with extra variance.
        smoothing: ``alpha`` in (0, 1]: the weight of the elites against the old mean.
        std_smoothing: ``beta``, the same for the standard deviation (for the covariance, if
            full).
        variance_schedule: The variance ``Z_t`` that is added to the elites': None, a schedule
            of ``cem.core.variance_schedule``, its text such as ``"linear:5,10"``, or any
            function that maps a generation to a finite variance ``>= 0``. It is called ahead of
            time, once for each generation.
        std_floor: The smallest standard deviation after ``tell()``, finite, ``>= 0``.
        relative_std_floor: The same as a fraction of the first one, per dimension. None: 1e-6,
            or 0 with paths.
        bound_handling: How candidates are moved inside the bounds: ``"clamp"``, ``"resample"``
            or ``"transform"``; see ``cem.core.bounds``.
        mean_averaging: ``gamma`` in [0, 1] of the averaged mean. For 0, ``averaged_mean`` is
            ``mean``.
        integers: The parameters of the normal distribution that are integers: either one flag
            for each parameter (bools, or 0 and 1 as in SciPy's ``integrality``), or indices.
            Numbers that could be both, such as [0, 1] for two parameters, are an error.
            Candidates have the nearest integers within the bounds. The standard deviation has a
            lower limit that lets the search leave an integer: the margin of R. Hamano et al.,
            CMA-ES with Margin, GECCO 2022.
        families: The families of discrete parameters of ``cem.families``. Their columns follow
            those of the mean, which may have none: shape (..., 0). The settings above do not
            change how they learn: see their ``smoothing`` and ``kernels.ops.discrete``.
    """

    elite_fraction: float | None = None
    num_elites: int | None = None
    weights: Weights = "log"
    covariance: Covariance = "diagonal"
    paths: bool = False
    variance_about: VarianceAbout = "old_mean"
    smoothing: float = 1.0
    std_smoothing: float = 0.4
    variance_schedule: VarianceSchedule | str | None = None
    std_floor: float = 0.0
    relative_std_floor: float | None = None
    bound_handling: BoundHandling = "clamp"
    mean_averaging: float = 0.0
    integers: Sequence[int] = ()
    families: Sequence[Family] = ()

    def __post_init__(self) -> None:
        """Check the values, and convert some of them.

        A variance schedule that is a string or None becomes a function. ``integers`` and
        ``families`` become tuples. The class is frozen, so the fields are set by
        object.__setattr__.
        """
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in get_args(choices):
                raise unknown_name(f"value for {name}", str(value), get_args(choices))
        check_flags(paths=self.paths)
        if self.num_elites is not None and self.elite_fraction is not None:
            both = f"{self.elite_fraction!r} and {self.num_elites!r}"
            raise ValueError(f"expected elite_fraction or num_elites, got both: {both}")
        if self.elite_fraction is not None:
            check_real("elite_fraction", self.elite_fraction, 0.0, 1.0, open_low=True)
        if self.num_elites is not None:
            check_integer("num_elites", self.num_elites, MIN_ELITES)
        for name in ("smoothing", "std_smoothing"):
            check_real(name, getattr(self, name), 0.0, 1.0, open_low=True)
        check_real("mean_averaging", self.mean_averaging, 0.0, 1.0)
        check_real("std_floor", self.std_floor, 0.0)
        check_real("relative_std_floor", self.floor_share, 0.0)
        if self.variance_schedule is None or isinstance(self.variance_schedule, str):
            schedule = parse_variance_schedule(self.variance_schedule or "none")
            object.__setattr__(self, "variance_schedule", schedule)

        # `integers` contains one flag for each parameter, or the indices of some parameters.
        # NumPy's dtype kind is "b" for flags, and "i" or "u" for integers. An empty array has
        # floats.
        integers = np.asarray(self.integers)
        is_valid = integers.dtype.kind in "biu" or integers.size == 0
        if integers.ndim != 1 or not is_valid:
            raise ValueError(
                f"expected flags or indices of parameters for integers, got {self.integers!r}"
            )
        object.__setattr__(self, "integers", tuple(integers.tolist()))

        object.__setattr__(self, "families", tuple(self.families))
        for family in self.families:
            if not isinstance(family, Family):
                raise TypeError(f"expected the members of cem.families.Family, got {family!r}")

    @property
    def num_discrete(self) -> int:
        """The number of columns of the families, the last ones of a candidate."""
        return sum(family.columns for family in self.families)

    @property
    def schedule(self) -> VarianceSchedule:
        """``variance_schedule`` as a function."""
        return self.variance_schedule  # type: ignore[return-value]

    @property
    def floor_share(self) -> float:
        """``relative_std_floor``, or its default."""
        if self.relative_std_floor is not None:
            return self.relative_std_floor
        return 0.0 if self.paths else 1e-6

    def elites_of(self, population_size: int) -> int:
        """Return the number of elites of a population."""
        if self.num_elites is not None:
            return check_integer("num_elites", self.num_elites, MIN_ELITES, population_size)
        fraction = self.elite_fraction or (0.5 if self.paths else 0.2)
        # 0.07 * 100 is 7.000000000000001, which must become 7 elites and not 8.
        return max(MIN_ELITES, math.ceil(fraction * population_size - 1e-9))

    def integers_of(self, dim: int) -> list[int]:
        """Return the indices of the integer parameters in a search with ``dim`` parameters.

        The setting ``integers`` either has a flag for every parameter (False or True, 0 or 1),
        or is a list of these indices.
        """
        numbers = list(self.integers)
        distinct_numbers = set(numbers)
        has_bools = any(isinstance(number, bool) for number in numbers)
        has_duplicates = len(distinct_numbers) < len(numbers)
        is_in_range = distinct_numbers <= set(range(dim))
        are_indices = is_in_range and not has_bools and not has_duplicates
        are_flags = 0 < len(numbers) == dim and distinct_numbers <= {0, 1}
        if are_flags == are_indices:  # They are neither, or both, as [0, 1] for two parameters.
            raise ValueError(
                f"expected {dim} flags True or False, or different indices from 0 to "
                f"{dim - 1}, for integers, got {numbers}"
            )
        if are_flags:
            return [i for i, flag in enumerate(numbers) if flag]
        return numbers

    def population_of(self, dim: int) -> int:
        """Return the default population size for ``dim`` parameters; families double it.

        It never equals ``dim``. Otherwise an objective that confuses columns with candidates
        would return a fitness of the right shape.
        """
        size = min(10 * dim, 1000)
        if self.paths:
            size = 4 + int(3 * math.log(dim))
        if self.families:
            size *= 2
        return size + (size == dim)

    @classmethod
    def cma(cls, covariance: Covariance = "full", **changes: Any) -> "CEMConfig":
        """Return CMA-ES, full or diagonal, as in ``cem.core.adaptation``, with ``changes``."""
        return cls(**{"covariance": covariance, "paths": True, **changes})

    @classmethod
    def classic(
        cls, noise: VarianceSchedule | str | None = None, **changes: Any
    ) -> "CEMConfig":
        """Return the method as published: equal weights, and the variance about the new mean.

        It is that of de Boer et al. (2005), and with ``noise`` that of Szita and Lorincz
        (2006): see ``cem.optimizer``.
        """
        settings = {
            "weights": "equal",
            "variance_about": "new_mean",
            "std_smoothing": 1.0,
            "relative_std_floor": 0.0,
            "variance_schedule": noise,
            **changes,
        }
        return cls(**settings)

    @classmethod
    def chosen(cls, dim: int, bounded: bool = False, **changes: Any) -> "CEMConfig":
        """Return the default for a search of ``dim`` parameters, which is CMA-ES.

        With bounds, a smooth map transforms the candidates into the box. If they were clamped,
        they would gather on a face, where the step size would shrink. If there are integers,
        they are clamped nevertheless, as integers always are. The first search with a surrogate
        model clamps them, too: see ``cem.search.assisted.begin_with_descent``.
        """
        config = cls.cma("full" if dim <= _LARGEST_FULL else "diagonal", **changes)
        is_clamped = config.integers_of(dim) or not bounded
        return replace(config, bound_handling="clamp" if is_clamped else "transform")
