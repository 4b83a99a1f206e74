"""A space of named parameters: a dict whose values say what each parameter may be.

Every type of parameter knows how the numbers of its column become its values, and back:
``value_of`` is for a single candidate, ``values_of`` for the column of a population,
``number_of`` for the value of a first candidate.
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

_ROUNDING = 1e-9  # of a step: an upper end that misses the grid by no more lies on it


class _Number:
    """What ``Float`` and ``Int`` share: a column of the normal distribution, with a scale."""

    low: float
    high: float
    log: bool
    step: float | None
    margin: ClassVar[float] = 0.0
    """How far the range goes beyond its ends where a number is searched by its logarithm."""

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the column: in steps, as logarithms, or as they are."""
        if self.step is not None:
            return 0.0, float(round((self.high - self.low) / self.step))
        if self.log:
            return math.log(self.low - self.margin), math.log(self.high + self.margin)
        return float(self.low), float(self.high)

    @property
    def has_integers(self) -> bool:
        """Whether the column has integers: numbers of steps, or the values themselves."""
        return self.step is not None or (isinstance(self, Int) and not self.log)

    def value_of(self, number: float) -> float:
        """Return the value for a number of the column."""
        value: float = self._rescale(number, math.exp)
        return min(max(value, self.low), self.high)

    def values_of(self, column: Any) -> Any:
        """Return the values for a column, a tensor or an array of shape (N,)."""
        exp: Any = torch.exp if isinstance(column, Tensor) else np.exp
        return self._rescale(column, exp).clip(self.low, self.high)

    def number_of(self, name: str, value: Any) -> float:
        """Return the number of the column for a value of the parameter of that name."""
        check_real(name, value, self.low, self.high)
        if self.step is not None:
            return float(round((value - self.low) / self.step))
        return math.log(value) if self.log else float(value)

    def _rescale(self, number: Any, exp: Any) -> Any:
        """Return the value of a number or a column; rounding may take it beyond an end."""
        if self.step is not None:
            return self.low + number * self.step
        return exp(number) if self.log else number


@dataclass(frozen=True)
class Float(_Number):
    """A number in [low, high]; with ``log`` searched by its logarithm, with ``step`` on a grid.

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
            steps = int((self.high - self.low) / self.step + _ROUNDING)
            object.__setattr__(self, "high", min(self.low + steps * self.step, self.high))


@dataclass(frozen=True)
class Int(_Number):
    """An integer in [low, high]; with ``log`` searched by its logarithm, and rounded.

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
    margin: ClassVar[float] = 0.5  # as much room for the ends as for other integers

    def __post_init__(self) -> None:
        check_flags(log=self.log)
        check_integer("low", self.low, 1 if self.log else -(2**52))
        check_integer("high", self.high, self.low, 2**52)

    def value_of(self, number: float) -> int:
        """Return the value for a number of the column."""
        return round(super().value_of(number))

    def values_of(self, column: Any) -> Any:
        """Return the values for a column, int64, shape (N,)."""
        return as_int64(super().values_of(column).round())


@dataclass(frozen=True, init=False)
class Choice:
    """One of some values of any kind, which have no order: ``Choice("relu", "gelu")``.

    Examples:
        >>> from cem import Choice, minimize
        >>> space = {"name": Choice("four", "one", "three")}
        >>> minimize(lambda p: len(p["name"]), space, budget=50, seed=1).x
        {'name': 'one'}
    """

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        """Set one or more different values; a single list, tuple, range or array holds them."""
        # A single argument may be a container of the values.
        container = values[0] if len(values) == 1 else None
        if isinstance(container, (set, frozenset, dict, Iterator)):
            expected = "choices one by one, or in a list or tuple"
            raise TypeError(f"expected {expected}, got {container!r}")
        if isinstance(container, np.ndarray):
            container = container.tolist()
        if isinstance(container, (list, tuple, range)):
            values = tuple(container)
        if not values:
            raise ValueError("expected one choice or more, got none")
        object.__setattr__(self, "values", values)  # of a frozen dataclass
        indices = [self.index(value) for value in values]
        if indices != list(range(len(values))):
            # A value that has another index than its own equals the value there.
            raise ValueError(f"expected choices that differ, got {values!r}")

    def index(self, value: Any) -> int | None:
        """Return the index of a value; of equal ones, such as 1 and True, by its type.

        It is the first index if there are several, and None if there is none.
        """
        equal = [index for index, other in enumerate(self.values) if _is_equal(value, other)]
        same_type = [index for index in equal if type(self.values[index]) is type(value)]
        return next(iter(same_type or equal), None)

    def value_of(self, number: float) -> Any:
        """Return the choice for a number of the column, its index."""
        return self.values[int(number)]

    def values_of(self, column: Any) -> Any:
        """Return the indices of the choices of a column, int64, shape (N,)."""
        return as_int64(column)

    def number_of(self, name: str, value: Any) -> int:
        """Return the index of a choice for the parameter of that name."""
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
        """Return the values for a column, bools, shape (N,)."""
        return column > 0


class Space:
    """The columns of a candidate that hold named parameters, and their values.

    Numbers come first, in the normal distribution, then choices, in one categorical family,
    then permutations.

    Attributes:
        parameters: The parameters by name; those that are fixed have their value.
        columns: The column of each parameter that is searched; for a permutation a slice.
        mean, std, bounds: Those of the normal distribution, as ``minimize`` takes them.
        discrete: The integers, and the families of the other columns, as ``CEMConfig`` takes
            them.
        dim: The number of columns.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        """Assign the columns of a candidate to the parameters.

        Every number and choice has one column, and a permutation of n items has n. Numbers come
        first, then choices, then permutations.

        Args:
            parameters: The parameters by name. A value that is not a parameter is fixed, and so
                is a number with equal ends.
        """
        self.parameters = {name: _value_if_fixed(value) for name, value in parameters.items()}
        numbers = self._parameters_of(Float, Int)
        choices = self._parameters_of(Choice)
        permutations = self._parameters_of(Permutation)
        if not (numbers or choices or permutations):
            expected = "Float, Int, Choice, Bool or Permutation in a dict of parameters"
            raise ValueError(f"expected {expected}, got {self.parameters!r}")
        # Two arrays, which are empty if there are no numbers.
        ends = [number.ends for number in numbers.values()]
        low, high = np.array(ends, dtype=float).reshape(-1, 2).T
        # The search begins in the middle, and reaches both ends with two standard deviations.
        self.mean = (low + high) / 2
        self.std = (high - low) / 4
        self.bounds = list(zip(low, high, strict=True)) if numbers else None
        families: list[Family] = []
        if choices:
            sizes = tuple(len(choice.values) for choice in choices.values())
            families.append(Categorical(sizes))
        families += permutations.values()
        integers = [number.has_integers for number in numbers.values()]
        self.discrete: dict[str, Any] = {"integers": integers, "families": families}
        names = [*numbers, *choices]
        self.columns: dict[str, Any] = {name: column for column, name in enumerate(names)}
        self.dim = len(self.columns)
        for name, permutation in permutations.items():
            self.columns[name] = slice(self.dim, self.dim + permutation.items)
            self.dim += permutation.items

    def _parameters_of(self, *types: type) -> dict[str, Any]:
        """Return the parameters of some types by name."""
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
        """Return the arguments of ``minimize`` as those of a search of vectors.

        Args:
            function: The objective, a function of the named parameters.
            std: None, because the space chooses the standard deviation.
            options: All options of the call.

        Returns:
            The objective as a function of candidates, the first mean, the first standard
            deviation, and the options, now with the bounds and config of the space.

        Raises:
            TypeError: If an argument is given that only vectors have.
        """
        config = options["config"]
        vector_arguments = (std, options["bounds"], options["integers"])
        has_vector_argument = any(argument is not None for argument in vector_arguments)
        has_discrete = config and (config.integers or config.families)
        if has_vector_argument or has_discrete:
            unexpected = "neither std, bounds, integers nor families"
            raise TypeError(f"expected {unexpected} with a dict of parameters")
        vectorize = options["vectorize"]
        if vectorize not in (None, False, "loop"):
            raise ValueError(f"expected 'loop' or False for vectorize, got {vectorize!r}")
        # The function gets either one candidate, or the columns of a population.
        by_column = vectorize is False and options["workers"] is None
        settings = self.settings(config)
        mean = self.encode(options["x0"] or {})[: len(self.mean)]
        if torch.device(options["device"] or "cpu").type != "cpu":
            mean = torch.from_numpy(mean)
        vector_options = {
            **options,
            "vectorize": False if by_column else "loop",
            "bounds": settings["bounds"],
            "config": settings["config"],
        }
        return Named(function, self, by_column), mean, settings["std"], vector_options

    def settings(self, config: CEMConfig | None = None) -> dict[str, Any]:
        """Return mean, std, bounds and config for ``CrossEntropyMethod``."""
        if config is None:
            is_bounded = self.bounds is not None and not any(self.discrete["integers"])
            config = CEMConfig.chosen(self.dim, is_bounded)
        config = replace(config, **self.discrete)
        return {"mean": self.mean, "std": self.std, "bounds": self.bounds, "config": config}

    def spread(self, std: Any) -> dict[str, float]:
        """Return the standard deviation of numbers, and for others how uncertain they are.

        ``std`` is that of a search, shape (dim,).
        """
        spreads = {}
        for name, column in self.columns.items():
            step = getattr(self.parameters[name], "step", None) or 1.0
            spreads[name] = float(std[column].mean()) * step
        return spreads

    def decode(self, x: Any) -> dict[str, Any]:
        """Return the values of a candidate, shape (dim,), by parameter."""
        row = x.tolist()
        values = dict(self.parameters)
        for name, column in self.columns.items():
            values[name] = self.parameters[name].value_of(row[column])
        return values

    def by_column(self, x: Any) -> dict[str, Any]:
        """Return the values of a population by parameter.

        Args:
            x: The candidates, a tensor or an array of shape (N, dim).

        Returns:
            For each parameter its values, shape (N,), or (N, n) for a permutation of n items. A
            choice is given by its index. Integers are int64. Fixed parameters have their value.
        """
        values = dict(self.parameters)
        for name, column in self.columns.items():
            values[name] = self.parameters[name].values_of(x[:, column])
        return values

    def encode(self, values: Mapping[str, Any]) -> Any:
        """Return a candidate, an array of shape (dim,), for the values of some parameters.

        Other numbers are in the middle of their range, other choices are the first one, and
        other permutations are the order 0, 1, 2, ...

        Raises:
            ValueError: If a value is none of its parameter, or differs from a fixed one.
        """
        x = np.zeros(self.dim)
        x[: len(self.mean)] = self.mean
        for name, permutation in self._parameters_of(Permutation).items():
            x[self.columns[name]] = range(permutation.items)
        for name, value in values.items():
            if name not in self.parameters:
                raise unknown_name("parameter", name, self.columns)
            parameter = self.parameters[name]
            if name in self.columns:
                x[self.columns[name]] = parameter.number_of(name, value)
            elif not _is_equal(value, parameter):
                expected = f"{name}={parameter!r}, which is fixed"
                raise ValueError(f"expected {expected}, got {value!r}")
        return x


def _value_if_fixed(parameter: Any) -> Any:
    """Return the only value of a number with equal ends, and anything else as it is."""
    is_number = isinstance(parameter, (Float, Int))
    return parameter.low if is_number and parameter.low == parameter.high else parameter


def _is_equal(value: Any, other: Any) -> bool:
    """Return whether two values of any kind, such as arrays, are equal."""
    try:
        same = value is other or value == other
        return same if isinstance(same, bool) else bool(np.all(same))
    except (TypeError, ValueError, RuntimeError):  # arrays of different shapes
        return False


@dataclass(eq=False)
class Named:
    """A function of named parameters as a function of candidates.

    It maps one candidate, or with ``by_column`` a population.
    """

    function: Any
    space: Space
    by_column: bool

    def __call__(self, x: Any, *generation: Any) -> Any:
        """Return the function's result for a candidate, (dim,), or a population, (N, dim)."""
        values = self.space.by_column(x) if self.by_column else self.space.decode(x)
        return self.function(values, *generation)
