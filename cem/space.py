"""A space of named parameters: a dict whose values say what each may be."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from cem.core.checks import check_real
from cem.core.config import CEMConfig
from cem.families import Categorical, Family, Permutation
from kernels.support.checks import check_flags, check_integer
from kernels.support.names import unknown_name

_ROUNDING = 1e-9  # of a step: where high is on the grid but for rounding, it is the last number


@dataclass(frozen=True)
class Float:
    """A number in [low, high]; with ``log`` searched by its logarithm, with ``step`` on a grid.

    Examples:
        >>> from cem import Float, minimize
        >>> space = {"rate": Float(1e-5, 1.0, log=True)}
        >>> round(minimize(lambda p: (p["rate"] - 0.01) ** 2, space, budget=400, seed=1).x["rate"], 5)
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
class Int:
    """An integer in [low, high]; with ``log`` searched by its logarithm, and rounded.

    Examples:
        >>> from cem import Int, minimize
        >>> minimize(lambda p: abs(p["layers"] - 3), {"layers": Int(1, 8)}, budget=100, seed=1).x
        {'layers': 3}
    """

    low: int
    high: int
    log: bool = False
    step: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_flags(log=self.log)
        check_integer("low", self.low, 1 if self.log else -(2**52))
        check_integer("high", self.high, self.low, 2**52)


@dataclass(frozen=True, init=False)
class Choice:
    """One of some values of any kind, which have no order: ``Choice("relu", "gelu")``.

    Examples:
        >>> from cem import Choice, minimize
        >>> minimize(lambda p: len(p["name"]), {"name": Choice("four", "one", "three")}, budget=50, seed=1).x
        {'name': 'one'}
    """

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        """Set the values, one or more, that differ; a list, tuple, range or array alone holds them."""
        first = values[0] if len(values) == 1 else None
        if isinstance(first, (set, frozenset, dict, Iterator)):
            raise TypeError(f"expected choices one by one, or in a list or tuple, got {first!r}")
        if isinstance(first, np.ndarray):
            first = first.tolist()
        values = tuple(first) if isinstance(first, (list, tuple, range)) else values
        if not values:
            raise ValueError("expected one choice or more, got none")
        object.__setattr__(self, "values", values)
        if any(self.index(value) != place for place, value in enumerate(values)):
            raise ValueError(f"expected choices that differ, got {values!r}")

    def index(self, value: Any) -> int | None:
        """Return the place of a value, of its own type if there are several, such as 1 and True."""
        places = (place for place, other in enumerate(self.values) if _is_equal(value, other))
        return min(places, key=lambda place: type(self.values[place]) is not type(value), default=None)


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


class Space:
    """The columns of a candidate that hold named parameters, and their values.

    Numbers are first, in the normal distribution, then choices, in one categorical family, then permutations.

    Attributes:
        mean, std, bounds: Of the normal distribution, as ``minimize`` takes them.
        discrete: The integers, and the families of the other columns, as ``CEMConfig`` takes them.
        dim: The columns.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        """Set up; values that are no parameter are fixed, and numbers from low to the same high."""
        self.parameters = {name: _fixed(each) for name, each in parameters.items()}
        numbers = {name: each for name, each in self.parameters.items() if isinstance(each, (Float, Int))}
        choices = {name: each for name, each in self.parameters.items() if isinstance(each, Choice)}
        orders = {name: each for name, each in self.parameters.items() if isinstance(each, Permutation)}
        if not (numbers or choices or orders):
            kinds = "Float, Int, Choice, Bool or Permutation"
            raise ValueError(f"expected {kinds} in a dict of parameters, got {self.parameters!r}")
        low, high = np.array([_ends(each) for each in numbers.values()], dtype=float).reshape(-1, 2).T
        self.mean, self.std = (low + high) / 2, (high - low) / 4
        self.bounds = list(zip(low, high, strict=True)) or None
        families: list[Family] = [*orders.values()]
        if choices:
            families.insert(0, Categorical(tuple(len(each.values) for each in choices.values())))
        integers = [
            each.step is not None or (isinstance(each, Int) and not each.log) for each in numbers.values()
        ]
        self.discrete: dict[str, Any] = {"integers": integers, "families": families}
        self.columns: dict[str, Any] = {}  # of each parameter: a number or a slice
        self.columns.update((name, number) for number, name in enumerate([*numbers, *choices]))
        self.dim = len(self.columns)
        for name, each in orders.items():
            self.columns[name] = slice(self.dim, self.dim + each.items)
            self.dim += each.items

    def __repr__(self) -> str:
        return repr(self.parameters)

    def search(
        self, function: Any, std: Any, options: Mapping[str, Any]
    ) -> tuple[Any, Any, Any, dict[str, Any]]:
        """Return objective, first mean and std, and options, of the search of ``minimize`` for a function."""
        config, others = options["config"], [std, options["bounds"], options["integers"]]
        if any(each is not None for each in others) or (config and (config.integers or config.families)):
            raise TypeError("expected neither std, bounds, integers nor families with a dict of parameters")
        if options["vectorize"] not in (None, False, "loop"):
            raise ValueError(f"expected 'loop' or False for vectorize, got {options['vectorize']!r}")
        by_column = options["vectorize"] is False and options["workers"] is None
        found = self.settings(config)
        mean = self.encode(options["x0"] or {})[: len(self.mean)]
        vectorize = False if by_column else "loop"
        changed = {"vectorize": vectorize, "bounds": found["bounds"], "config": found["config"]}
        on_host = torch.device(options["device"] or "cpu").type == "cpu"
        first = mean if on_host else torch.from_numpy(mean)
        return Named(function, self, by_column), first, found["std"], {**options, **changed}

    def settings(self, config: CEMConfig | None = None) -> dict[str, Any]:
        """Return mean, std, bounds and config of a search, as ``CrossEntropyMethod`` takes them."""
        if config is None:
            is_bounded = self.bounds is not None and not any(self.discrete["integers"])
            config = CEMConfig.chosen(self.dim, is_bounded)
        config = replace(config, **self.discrete)
        return {"mean": self.mean, "std": self.std, "bounds": self.bounds, "config": config}

    def spread(self, std: Any) -> dict[str, float]:
        """Return the standard deviations of numbers; of others, how probable another value is."""
        return {
            name: float(std[column].mean()) * (getattr(self.parameters[name], "step", None) or 1.0)
            for name, column in self.columns.items()
        }

    def decode(self, x: Any) -> dict[str, Any]:
        """Return the values of a candidate, shape (dim,)."""
        row = x.tolist()
        return {
            name: self._value(each, row[self.columns[name]]) if name in self.columns else each
            for name, each in self.parameters.items()
        }

    def _value(self, each: Any, number: Any) -> Any:
        if isinstance(each, Permutation):
            return [int(item) for item in number]
        if isinstance(each, Choice):
            return each.values[int(number)]
        outer = _outer(each, number, math.exp)
        inside = min(max(outer, each.low), each.high)
        return round(inside) if isinstance(each, Int) else inside

    def by_column(self, x: Any) -> dict[str, Any]:
        """Return the values of candidates, shape (N, dim), by parameter: (N,), or (N, n) of permutations.

        Of choices their numbers. Tensors or arrays, as the candidates are; integers are int64.
        """
        found = {}
        for name, each in self.parameters.items():
            if name not in self.columns:
                found[name] = each
                continue
            column = x[:, self.columns[name]]
            if isinstance(each, (Float, Int)):
                column = _outer(each, column, Tensor.exp if isinstance(x, Tensor) else np.exp).clip(
                    each.low, each.high
                )
                column = column.round() if isinstance(each, Int) else column
            if not isinstance(each, Float):
                column = column.long() if isinstance(x, Tensor) else column.astype(np.int64)
            found[name] = column > 0 if isinstance(each, Bool) else column
        return found

    def encode(self, values: Mapping[str, Any]) -> Any:
        """Return the candidate of some values, shape (dim,), an array; others are in the middle, or first."""
        x = np.zeros(self.dim)
        x[: len(self.mean)] = self.mean
        for name, column in self.columns.items():
            if isinstance(self.parameters[name], Permutation):
                x[column] = range(self.parameters[name].items)
        for name, value in values.items():
            if name not in self.parameters:
                raise unknown_name("parameter", name, self.columns)
            each = self.parameters[name]
            if name not in self.columns:
                if not _is_equal(value, each):
                    raise ValueError(f"expected {name}={each!r}, which is fixed, got {value!r}")
            elif isinstance(each, Choice):
                place = each.index(value)
                if place is None:
                    raise ValueError(f"expected {name} out of {each.values}, got {value!r}")
                x[self.columns[name]] = place
            elif isinstance(each, Permutation):
                if sorted(value) != list(range(each.items)):
                    raise ValueError(f"expected {name} as an order of 0 .. {each.items - 1}, got {value!r}")
                x[self.columns[name]] = value
            else:
                check_real(name, value, each.low, each.high)
                inner = math.log(value) if each.log else value
                if each.step is not None:
                    inner = round((value - each.low) / each.step)
                x[self.columns[name]] = inner
        return x


def _fixed(each: Any) -> Any:
    """Return a parameter, or the only number that it may be."""
    return each.low if isinstance(each, (Float, Int)) and each.low == each.high else each


def _outer(each: Float | Int, number: Any, exp: Any) -> Any:
    """Return the value of a number, or of a column, as it is searched; it may be rounded to beyond an end."""
    if each.step is not None:
        return each.low + number * each.step
    return exp(number) if each.log else number


def _ends(each: Float | Int) -> tuple[float, float]:
    """Return the ends of a number as it is searched; of logarithms that are rounded half an integer more."""
    if each.step is not None:
        return 0.0, float(round((each.high - each.low) / each.step))
    if not each.log:
        return float(each.low), float(each.high)
    margin = 0.5 if isinstance(each, Int) else 0.0
    return math.log(each.low - margin), math.log(each.high + margin)


def _is_equal(value: Any, other: Any) -> bool:
    """Return whether two values of any kind, arrays among them, are the same."""
    try:
        same = value is other or value == other
        return same if isinstance(same, bool) else bool(np.all(same))
    except (TypeError, ValueError, RuntimeError):  # arrays of other shapes
        return False


class Named:
    """A function of named parameters as one of candidates: of one, or of a population by column."""

    def __init__(self, function: Any, space: Space, by_column: bool) -> None:
        """Set the function, and how it gets candidates."""
        self.function, self.space, self.by_column = function, space, by_column
        self.with_generation = getattr(function, "with_generation", False)

    def __call__(self, x: Any, *generation: Any) -> Any:
        """Return what the function says of a candidate, (dim,), or of a population, (N, dim)."""
        values = self.space.by_column(x) if self.by_column else self.space.decode(x)
        return self.function(values, *generation)
