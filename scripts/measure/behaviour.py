"""What optimisers make of fitness that fails, is flat or integer, of bounds, and of being saved.

The objective is the sphere about 1 in four dimensions, the start 0 with a standard deviation of 1, the
population 40; "error" is the greatest distance of a coordinate of the mean from the optimum after 60
generations, the median of five seeds. A generation that an optimiser refuses is dropped, and the next one is
asked for.

    nan, inf         candidates with x_0 < 0, half of the first generation, have that fitness
    failed           every candidate of the third generation is NaN
    plateau          the fitness is constant: the standard deviation after 60 generations over the first one
    integer          int64 above 2^60: the squared distance in millionths; float64 holds every 256th there
    bounds           to [-2, 0.5]: the error is that of the mean from 0.5; outside is the share of candidates
    resume           pickled after five generations, the copy draws the next five as the original does: 1
"""

from __future__ import annotations

import importlib.util
import pickle
import statistics
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from cem import CrossEntropyMethod

DIM, POPULATION, GENERATIONS, SEEDS = 4, 40, 60, (1, 2, 3, 4, 5)
OPTIMUM, BOUND = 1.0, 0.5
_LARGE = 1 << 60

Bounds = tuple[float, float] | None
Array = Any


class Optimiser(Protocol):
    """What is asked of an optimiser; arrays of float64."""

    def ask(self) -> Array:
        """Return candidates, shape (N, d)."""

    def tell(self, candidates: Array, fitness: Array) -> None:
        """Take their fitness, shape (N,); it is minimised."""

    @property
    def mean(self) -> Array:
        """The mean, shape (d,)."""

    @property
    def std(self) -> Array:
        """The standard deviation, shape (d,)."""


class Ours:
    """`CrossEntropyMethod` with its defaults."""

    def __init__(self, seed: int, bounds: Bounds) -> None:
        """Start."""
        self._search = CrossEntropyMethod(
            np.zeros(DIM), 1.0, POPULATION, maximize=False, seed=seed, bounds=bounds
        )

    def ask(self) -> Array:
        """As `Optimiser`."""
        return self._search.ask()

    def tell(self, candidates: Array, fitness: Array) -> None:
        """As `Optimiser`."""
        self._search.tell(fitness)

    @property
    def mean(self) -> Array:
        """As `Optimiser`."""
        return self._search.mean

    @property
    def std(self) -> Array:
        """As `Optimiser`."""
        return self._search.std


class TenLines:
    """The method as published, in NumPy."""

    def __init__(self, seed: int, bounds: Bounds) -> None:
        """Start."""
        self._generator = np.random.default_rng(seed)
        self._bounds = bounds
        self.mean, self.std = np.zeros(DIM), np.ones(DIM)

    def ask(self) -> Array:
        """As `Optimiser`."""
        candidates = self.mean + self.std * self._generator.standard_normal((POPULATION, DIM))
        return candidates if self._bounds is None else candidates.clip(*self._bounds)

    def tell(self, candidates: Array, fitness: Array) -> None:
        """As `Optimiser`."""
        elites = candidates[np.argsort(fitness)[: POPULATION // 5]]
        self.mean, self.std = elites.mean(0), elites.std(0)


class EvoTorch:
    """The functional CEM of evotorch, 20 % parents."""

    def __init__(self, seed: int, bounds: Bounds) -> None:
        """Start."""
        import torch
        from evotorch.algorithms.functional import cem

        if bounds is not None:
            raise NotImplementedError("no bounds")
        torch.manual_seed(seed)
        self._state = cem(
            center_init=torch.zeros(DIM, dtype=torch.float64),
            stdev_init=1.0,
            parenthood_ratio=0.2,
            objective_sense="min",
        )

    def ask(self) -> Array:
        """As `Optimiser`."""
        from evotorch.algorithms.functional import cem_ask

        return cem_ask(self._state, popsize=POPULATION).numpy()

    def tell(self, candidates: Array, fitness: Array) -> None:
        """As `Optimiser`."""
        import torch
        from evotorch.algorithms.functional import cem_tell

        self._state = cem_tell(self._state, torch.from_numpy(candidates), torch.from_numpy(fitness))

    @property
    def mean(self) -> Array:
        """As `Optimiser`."""
        return self._state.center.numpy()

    @property
    def std(self) -> Array:
        """As `Optimiser`."""
        return self._state.stdev.numpy()


class CMAES:
    """SepCMA of cmaes."""

    def __init__(self, seed: int, bounds: Bounds) -> None:
        """Start."""
        from cmaes import SepCMA

        box = None if bounds is None else np.tile(np.array(bounds), (DIM, 1))
        self._search = SepCMA(np.zeros(DIM), 1.0, bounds=box, seed=seed, population_size=POPULATION)

    def ask(self) -> Array:
        """As `Optimiser`."""
        return np.array([self._search.ask() for _ in range(POPULATION)])

    def tell(self, candidates: Array, fitness: Array) -> None:
        """As `Optimiser`."""
        self._search.tell(list(zip(candidates, fitness.tolist(), strict=True)))

    @property
    def mean(self) -> Array:
        """As `Optimiser`."""
        return self._search.mean

    @property
    def std(self) -> Array:
        """As `Optimiser`."""
        return self._search._sigma * np.sqrt(self._search._C)


class PyCMA:
    """pycma with its defaults."""

    def __init__(self, seed: int, bounds: Bounds) -> None:
        """Start."""
        import cma

        options: dict[str, Any] = {"popsize": POPULATION, "seed": seed, "verbose": -9, "verb_log": 0}
        if bounds is not None:
            options["bounds"] = list(bounds)
        self._search = cma.CMAEvolutionStrategy(np.zeros(DIM), 1.0, options)

    def ask(self) -> Array:
        """As `Optimiser`."""
        return np.array(self._search.ask())

    def tell(self, candidates: Array, fitness: Array) -> None:
        """As `Optimiser`."""
        self._search.tell(list(candidates), fitness.tolist())

    @property
    def mean(self) -> Array:
        """As `Optimiser`."""
        return np.asarray(self._search.result.xfavorite)

    @property
    def std(self) -> Array:
        """As `Optimiser`."""
        return np.asarray(self._search.result.stds)


OPTIMISERS: dict[str, tuple[str, Callable[[int, Bounds], Optimiser]]] = {
    "cem": ("", Ours),
    "numpy": ("", TenLines),
    "evotorch": ("evotorch", EvoTorch),
    "cmaes": ("cmaes", CMAES),
    "pycma": ("cma", PyCMA),
}
"""The module that each needs, and how it is made."""


def sphere(x: Array) -> Array:
    """Return squared distances from the optimum, shape (N,)."""
    return ((x - OPTIMUM) ** 2).sum(-1)


def _half(value: float) -> Callable[[Array, int], Array]:
    return lambda x, generation: np.where(x[:, 0] < 0, value, sphere(x))


FITNESS: dict[str, Callable[[Array, int], Array]] = {
    "nan": _half(np.nan),
    "inf": _half(np.inf),
    "failed": lambda x, generation: np.full(len(x), np.nan) if generation == 2 else sphere(x),
    "plateau": lambda x, generation: np.zeros(len(x)),
    "integer": lambda x, generation: _LARGE + (1e6 * sphere(x)).astype(np.int64),
    "bounds": lambda x, generation: sphere(x),
}
"""Fitness by case: of candidates and the number of the generation, from 0."""


def search(optimiser: Optimiser, fitness: Callable[[Array, int], Array]) -> dict[str, Any]:
    """Run the generations; the exceptions by type, and the share of candidates outside the bounds."""
    refused: list[str] = []
    outside = 0.0
    for generation in range(GENERATIONS):
        try:
            candidates = optimiser.ask()
            optimiser.tell(candidates, fitness(candidates, generation))
        except Exception as error:
            refused.append(f"{type(error).__name__}: {error}")
            continue
        outside += float(((candidates > BOUND) | (candidates < -2.0)).any(-1).mean()) / GENERATIONS
    return {"refused": refused, "outside": outside}


def outcome(make: Callable[[int, Bounds], Optimiser], case: str, seed: int) -> dict[str, Any]:
    """Return what an optimiser makes of a case."""
    try:
        optimiser = make(seed, (-2.0, BOUND) if case == "bounds" else None)
    except NotImplementedError as error:
        return {"refused": [str(error)]}
    if case == "resume":
        return {"same": float(resumes(optimiser)), "refused": []}
    first = optimiser.std.copy()
    told = search(optimiser, FITNESS[case])
    if case == "plateau":
        told["std_ratio"] = float(np.exp(np.log(optimiser.std / first).mean()))
    else:
        told["error"] = float(np.abs(optimiser.mean - (BOUND if case == "bounds" else OPTIMUM)).max())
    if case != "bounds":
        del told["outside"]
    return told


def resumes(optimiser: Optimiser) -> bool:
    """Return whether a pickled copy draws what the original draws."""
    drawn: list[list[Array]] = []
    for _ in range(5):
        candidates = optimiser.ask()
        optimiser.tell(candidates, sphere(candidates))
    try:
        copy = pickle.loads(pickle.dumps(optimiser))
    except Exception:
        return False
    for each in (optimiser, copy):
        drawn.append([])
        for _ in range(5):
            candidates = each.ask()
            each.tell(candidates, sphere(candidates))
            drawn[-1].append(candidates)
    return all(np.array_equal(a, b) for a, b in zip(*drawn, strict=True))


def measure() -> tuple[dict[str, float], dict[str, Any]]:
    """Return medians over the seeds by figure, and all outcomes."""
    figures: dict[str, float] = {}
    details: dict[str, Any] = {}
    for name, (module, make) in OPTIMISERS.items():
        if module and importlib.util.find_spec(module) is None:
            continue
        for case in (*FITNESS, "resume"):
            found = [outcome(make, case, seed) for seed in SEEDS]
            details.setdefault(name, {})[case] = {
                "refused_generations": sum(len(each["refused"]) for each in found) / len(found),
                "message": next((text for each in found for text in each["refused"]), None),
            }
            for key in found[0].keys() - {"refused"}:
                median = statistics.median(each[key] for each in found)
                known = np.isfinite(median)
                details[name][case][key] = float(median) if known else "NaN"
                if known:
                    figures[f"behaviour.{name}.{case}.{key}"] = float(median)
    return figures, details
