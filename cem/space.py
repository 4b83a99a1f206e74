"""A space of named parameters: a dict whose values are the types of the parameters.

Every type of parameter converts between its values and the numbers of its column in a
candidate: ``value_of`` converts the number of a single candidate, ``values_of`` the column of a
population, and ``number_of`` a value back to its number.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from cem.core.checks import as_int64, check_real
from cem.core.config import CEMConfig
from cem.families import Categorical, Family, Permutation
from kernels.support.checks import check_flags, check_integer
from kernels.support.names import unknown_name

_ROUNDING = 1e-9  # the share of a step by which an end on the grid may miss it, by rounding


class _Number:
    """The base of ``Float`` and ``Int``, which have a column of the normal distribution."""

    low: float
    high: float
    log: bool
    step: float | None
    # The distance by which a logarithmic range is extended at both ends.
    margin: ClassVar[float] = 0.0

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the column: numbers of steps, logarithms, or the values themselves."""
        if self.step is not None:
            return 0.0, float(round((self.high - self.low) / self.step))
        if self.log:
            return math.log(self.low - self.margin), math.log(self.high + self.margin)
        return float(self.low), float(self.high)

    @property
    def has_integers(self) -> bool:
        """Whether the numbers of the column are integers: numbers of steps, or the values."""
        return self.step is not None or (isinstance(self, Int) and not self.log)

    def value_of(self, number: float) -> float:
        """Return the value of the parameter for a number of its column."""
        if self.step is not None:
            # The mean of a search is between two steps.
            number = round(number)
        value: float = self._rescale(number, math.exp)
        return float(min(max(value, self.low), self.high))

    def values_of(self, column: Any) -> Any:
        """Return the values of the parameter for its column, a tensor or array, shape (N,)."""
        exp: Any = torch.exp if isinstance(column, Tensor) else np.exp
        return self._rescale(column, exp).clip(self.low, self.high)

    def number_of(self, name: str, value: Any) -> float:
        """Return the number of the column for a value; ``name`` is for the error message."""
        check_real(name, value, self.low, self.high)
        number = float(value)
        if self.step is not None:
            number = float(round((value - self.low) / self.step))
        elif self.log:
            number = math.log(value)
        nearest = self.value_of(number)
        if not math.isclose(value, nearest, rel_tol=1e-6, abs_tol=1e-12):
            raise ValueError(f"expected {name} of {self!r}, such as {nearest}, got {value!r}")
        return number

    def _rescale(self, number: Any, exp: Any) -> Any:
        """Return the value for a number or a column; rounding may put it beyond an end."""
        if self.step is not None:
            return self.low + number * self.step
        return exp(number) if self.log else number


@dataclass(frozen=True)
class Float(_Number):
    """A number in [low, high], searched by its logarithm with ``log``, on a grid with ``step``.

    Examples:
        >>> from cem import Float, minimize
        >>> space = {"rate": Float(1e-5, 1.0, log=True)}
        >>> result = minimize(lambda p: (p["rate"] - 0.01) ** 2, space, budget=400, seed=1)
        >>> round(result.x["rate"], 5)
        0.01
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None

    def __post_init__(self) -> None:
        check_flags(log=self.log)
        check_real("low", self.low, 0.0 if self.log else -math.inf, open_low=self.log)
        check_real("high", self.high, self.low)
        if self.step is not None:
            check_real("step", self.step, 0.0, open_low=True)
            if self.log:
                raise ValueError(f"expected log or step, got both: {self!r}")
            # The last point of the grid becomes the upper end.
            steps = int((self.high - self.low) / self.step + _ROUNDING)
            object.__setattr__(self, "high", min(self.low + steps * self.step, self.high))


@dataclass(frozen=True)
class Int(_Number):
    """An integer in [low, high], searched by its logarithm with ``log``.

    Examples:
        >>> from cem import Int, minimize
        >>> space = {"layers": Int(1, 8)}
        >>> minimize(lambda p: abs(p["layers"] - 3), space, budget=100, seed=1).x
        {'layers': 3}
    """

    low: int
    high: int
    log: bool = False
    step: ClassVar[None] = None  # type: ignore[misc]
    margin: ClassVar[float] = 0.5  # The ends then have as much room as other integers.

    def __post_init__(self) -> None:
        check_flags(log=self.log)
        check_integer("low", self.low, 1 if self.log else -(2**52))
        check_integer("high", self.high, self.low, 2**52)

    def value_of(self, number: float) -> int:
        """Return the value of the parameter for a number of its column."""
        return round(super().value_of(number))

    def values_of(self, column: Any) -> Any:
        """Return the values of the parameter for its column, int64, shape (N,)."""
        return as_int64(super().values_of(column).round())


@dataclass(frozen=True, init=False)
class Choice:
    """One of several values of any type, without an order: ``Choice("relu", "gelu")``.

    Examples:
        >>> from cem import Choice, minimize
        >>> space = {"name": Choice("four", "one", "three")}
        >>> minimize(lambda p: len(p["name"]), space, budget=50, seed=1).x
        {'name': 'one'}
    """

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        """Set the values, which are several arguments, or one list, tuple, range or array.

        Raises:
            TypeError: If the only argument is a set, dict or iterator, whose order is not fixed
                or which can be read only once.
            ValueError: If there is no value, or if two values are equal.
        """
        # A single argument may be a container of the values.
        container = values[0] if len(values) == 1 else None
        if isinstance(container, (set, frozenset, dict, Iterator)):
            raise TypeError(
                f"expected choices one by one, or in a list or tuple, got {container!r}"
            )
        if isinstance(container, np.ndarray):
            container = container.tolist()
        if isinstance(container, (list, tuple, range)):
            values = tuple(container)
        if not values:
            raise ValueError("expected one choice or more, got none")
        # The dataclass is frozen, which forbids a plain assignment.
        object.__setattr__(self, "values", values)
        # ``index`` returns the first of equal values, so a repeated value has another index.
        indices = [self.index(value) for value in values]
        if indices != list(range(len(values))):
            raise ValueError(f"expected choices that differ, got {values!r}")

    def index(self, value: Any) -> int | None:
        """Return the index of the first choice that equals a value, or None if none does.

        Choices of the same type are preferred: 1 equals True, but both may be choices.
        """
        equal = [index for index, other in enumerate(self.values) if _is_equal(value, other)]
        same_type = [index for index in equal if type(self.values[index]) is type(value)]
        return next(iter(same_type or equal), None)

    def value_of(self, number: float) -> Any:
        """Return the choice for a number of the column, which is its index."""
        return self.values[int(number)]

    def values_of(self, column: Any) -> Any:
        """Return the column as int64, shape (N,): the indices of the choices."""
        return as_int64(column)

    def number_of(self, name: str, value: Any) -> int:
        """Return the index of a choice; ``name`` is for the error message."""
        index = self.index(value)
        if index is None:
            raise ValueError(f"expected {name} out of {self.values}, got {value!r}")
        return index


class Bool(Choice):
    """False or True.

    Examples:
        >>> from cem import Bool, maximize
        >>> maximize(lambda p: p["bias"], {"bias": Bool()}, budget=50, seed=1).x
        {'bias': True}
    """

    def __init__(self) -> None:
        """Set the values."""
        super().__init__(False, True)

    def values_of(self, column: Any) -> Any:
        """Return the values of the parameter for its column, bools, shape (N,)."""
        return column > 0


class Space:
    """The conversion between named parameters and the columns of a candidate.

    The first columns are numbers, which have a normal distribution. Choices come next, in one
    categorical family, and then permutations.

    Attributes:
        parameters: The parameters by name. A fixed parameter is its value.
        columns: The column of each parameter that is not fixed, by name; a slice of columns for
            a permutation.
        mean, std, bounds: The arguments of ``minimize`` for the numbers.
        discrete: The arguments ``integers`` and ``families`` of ``CEMConfig``.
        dim: The number of columns.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        """Assign columns of a candidate to the parameters.

        Numbers come first, with one column each. Next come choices, with one column each, and
        last permutations: a permutation of n items has n columns.

        Args:
            parameters: The parameters by name. A parameter is fixed, and has no column, if its
                value is not a ``Float``, ``Int``, ``Choice`` or ``Permutation``, or if the ends
                of its range are equal.

        Raises:
            TypeError: If a parameter is a family of distributions other than a permutation, or
                the class ``Bool``.
            ValueError: If every parameter is fixed.
        """
        for name, value in parameters.items():
            if value is Bool:  # As a fixed value, the class would be true.
                raise TypeError(f"expected Bool() for {name!r}, got the class")
            if isinstance(value, Family) and not isinstance(value, Permutation):
                hint = "other families are for CEMConfig(families=...)"
                raise TypeError(
                    f"expected a parameter for {name!r}, got the family {value!r}: {hint}"
                )
        self.parameters = {name: _value_if_fixed(value) for name, value in parameters.items()}
        numbers = self._parameters_of(Float, Int)
        choices = self._parameters_of(Choice)
        permutations = self._parameters_of(Permutation)
        if not (numbers or choices or permutations):
            raise ValueError(
                "expected Float, Int, Choice, Bool or Permutation in a dict of parameters, "
                f"got {self.parameters!r}"
            )
        self._set_ranges([number.ends for number in numbers.values()])
        # All choices form one family. Every permutation is a family by itself.
        families: list[Family] = []
        if choices:
            sizes = tuple(len(choice.values) for choice in choices.values())
            families.append(Categorical(sizes))
        families += permutations.values()
        integers = [number.has_integers for number in numbers.values()]
        self.discrete: dict[str, Any] = {"integers": integers, "families": families}
        self._assign_columns([*numbers, *choices], permutations)

    def _set_ranges(self, ends: list[tuple[float, float]]) -> None:
        """Set ``mean``, ``std`` and ``bounds`` from the two ends of each number."""
        # ``low`` and ``high`` are two arrays, which are empty if there are no numbers.
        low, high = np.array(ends, dtype=float).reshape(-1, 2).T
        # The search starts in the middle. The ends are two standard deviations away.
        self.mean = (low + high) / 2
        self.std = (high - low) / 4
        self.bounds = list(zip(low, high, strict=True)) if ends else None

    def _assign_columns(self, names: list[str], permutations: dict[str, Any]) -> None:
        """Set ``columns`` and ``dim``: one column for each name, several for a permutation."""
        self.columns: dict[str, Any] = {name: column for column, name in enumerate(names)}
        self.dim = len(self.columns)
        for name, permutation in permutations.items():
            self.columns[name] = slice(self.dim, self.dim + permutation.items)
            self.dim += permutation.items

    def _parameters_of(self, *types: type) -> dict[str, Any]:
        """Return the parameters that are instances of ``types``, by name."""
        items = self.parameters.items()
        return {name: value for name, value in items if isinstance(value, types)}

    def __repr__(self) -> str:
        return repr(self.parameters)

    def search(
        self,
        function: Any,
        std: Any,
        options: Mapping[str, Any],
    ) -> tuple[Any, Any, Any, dict[str, Any]]:
        """Convert the arguments of ``minimize`` from named parameters to vectors.

        Args:
            function: The objective, a function of the named parameters.
            std: The first standard deviation of the call. It must be None, because the space
                chooses it.
            options: All options of the call.

        Returns:
            The objective as a function of candidates.
            The first mean.
            The first standard deviation.
            The options, with the bounds and config of the space.

        Raises:
            TypeError: If an argument is set that is only allowed with vectors.
            ValueError: If ``vectorize`` is True.
        """
        config = options["config"]
        vector_arguments = (std, options["bounds"], options["integers"])
        has_vector_argument = any(argument is not None for argument in vector_arguments)
        has_discrete = config and (config.integers or config.families)
        if has_vector_argument or has_discrete:
            raise TypeError(
                "expected neither std, bounds, integers nor families with a dict of parameters"
            )

        vectorize = options["vectorize"]
        if vectorize not in (None, False, "loop"):
            raise ValueError(f"expected 'loop' or False for vectorize, got {vectorize!r}")
        # With ``by_column``, the objective gets the columns of a whole population. Otherwise it
        # gets a single candidate.
        by_column = vectorize is False and options["workers"] is None
        x0 = options["x0"]
        if not isinstance(x0, (Mapping, type(None))):
            raise TypeError(f"expected a dict for x0 with a dict of parameters, got {x0!r}")

        settings = self.settings(config)
        num_numbers = len(self.mean)
        mean = self.encode(options["x0"] or {})[:num_numbers]
        if torch.device(options["device"] or "cpu").type != "cpu":
            # An array is always on the CPU. On another device the mean must be a tensor.
            mean = torch.from_numpy(mean)

        vector_options = {
            **options,
            "vectorize": False if by_column else "loop",
            "bounds": settings["bounds"],
            "config": settings["config"],
        }
        return Named(function, self, by_column), mean, settings["std"], vector_options

    def settings(self, config: CEMConfig | None = None) -> dict[str, Any]:
        """Return the arguments mean, std, bounds and config of ``CrossEntropyMethod``."""
        if config is None:
            is_bounded = self.bounds is not None and not any(self.discrete["integers"])
            config = CEMConfig.chosen(self.dim, is_bounded)
        config = replace(config, **self.discrete)
        return {"mean": self.mean, "std": self.std, "bounds": self.bounds, "config": config}

    def spread(self, std: Any) -> dict[str, float]:
        """Return how uncertain each parameter is: for a number, its standard deviation.

        Args:
            std: The standard deviation of a search, shape (dim,).
        """
        spreads = {}
        for name, column in self.columns.items():
            step = getattr(self.parameters[name], "step", None) or 1.0
            spreads[name] = float(std[column].mean()) * step
        return spreads

    def decode(self, x: Any) -> dict[str, Any]:
        """Return the values of a candidate, shape (dim,), by name, with fixed parameters.

        A search in which no candidate succeeded has a candidate of NaN, and values of NaN.
        """
        row = x.tolist()
        values = dict(self.parameters)
        is_known = not math.isnan(row[0])
        for name, column in self.columns.items():
            value_of = self.parameters[name].value_of
            values[name] = value_of(row[column]) if is_known else math.nan
        return values

    def by_column(self, x: Any) -> dict[str, Any]:
        """Return the values of a population by name.

        Args:
            x: The candidates, a tensor or an array of shape (N, dim).

        Returns:
            The values of each parameter, shape (N,), or (N, n) for a permutation of n items. A
            choice is its index. Integers are int64. A fixed parameter is its value.
        """
        values = dict(self.parameters)
        for name, column in self.columns.items():
            values[name] = self.parameters[name].values_of(x[:, column])
        return values

    def encode(self, values: Mapping[str, Any]) -> Any:
        """Return a candidate, shape (dim,), with the given values of some parameters.

        All other parameters have defaults: the middle of the range of a number, the first value
        of a choice, and the order 0, 1, 2, ... of a permutation.

        Raises:
            ValueError: If no parameter has one of the names, if a value is not possible for its
                parameter, or if it differs from the value of a fixed parameter.
        """
        x = np.zeros(self.dim)
        x[: len(self.mean)] = self.mean
        for name, permutation in self._parameters_of(Permutation).items():
            x[self.columns[name]] = range(permutation.items)
        for name, value in values.items():
            if name not in self.parameters:
                raise unknown_name("parameter", name, self.columns)
            parameter = self.parameters[name]
            is_fixed = name not in self.columns  # ``parameter`` is then its only value.
            if not is_fixed:
                x[self.columns[name]] = parameter.number_of(name, value)
            elif not _is_equal(value, parameter):
                raise ValueError(
                    f"expected {name}={parameter!r}, which is fixed, got {value!r}"
                )
        return x


def _value_if_fixed(parameter: Any) -> Any:
    """Return the value of a number whose ends are equal, and anything else unchanged."""
    is_number = isinstance(parameter, (Float, Int))
    return parameter.low if is_number and parameter.low == parameter.high else parameter


def _is_equal(value: Any, other: Any) -> bool:
    """Return whether two values of any type, such as arrays, are equal."""
    try:
        same = value is other or value == other
        return same if isinstance(same, bool) else bool(np.all(np.asarray(same)))
    except (TypeError, ValueError, RuntimeError):  # arrays of different shapes
        return False


@dataclass(eq=False)
class Named:
    """A function of candidates that calls a function of named parameters.

    It maps one candidate, or with ``by_column`` a population.
    """

    function: Any
    space: Space
    by_column: bool

    def __call__(self, x: Any, *generation: Any) -> Any:
        """Return the result for a candidate, shape (dim,), or a population, shape (N, dim)."""
        values = self.space.by_column(x) if self.by_column else self.space.decode(x)
        return self.function(values, *generation)
