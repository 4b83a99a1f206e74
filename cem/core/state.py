"""The state of a search as a tuple of tensors, and how it begins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from cem.core.adaptation import Rates, all_weights, rank_weights, rates
from cem.core.backend import CMA_OPERATORS, OPERATORS, choose_backend, mix_seed
from cem.core.bounds import check_bounds, into_box, start_out_of_box
from cem.core.checks import check_device, check_distribution, check_vector, draw_seed
from cem.core.config import MIN_ELITES, CEMConfig
from cem.core.variance_schedule import NamedSchedule, extended
from cem.families.family import Family
from kernels.ops.cma_update import MAX_DIMENSIONS, MAX_POPULATION
from kernels.ops.philox import signed64
from kernels.support.checks import check_flags, check_integer

MEAN, STD, AVERAGED_MEAN, BEST = range(4)
"""Rows of ``State.distribution``."""
BEST_FITNESS, GENERATION_BEST, ELITE_MEAN, ELITE_THRESHOLD, FAILED = range(5)
"""Columns of ``State.record``."""


@dataclass(frozen=True)
class Settings:
    """The constants of a search that are no tensors.

    Attributes:
        config: How the distribution moves.
        population_size: N, the candidates per generation.
        num_elites: K, the elites among them.
        maximize: Whether a greater fitness is better.
        rates: The learning rates of evolution paths; None: without paths.
        backend: ``"cpu"`` or ``"cuda"``: the operators of ``kernels``; ``"torch"``: PyTorch operations.
        normal: The first columns of a candidate, which the normal distribution has; the families have the
            others. Where there are none of it, the state has one that no candidate has.
    """

    config: CEMConfig
    population_size: int
    num_elites: int
    maximize: bool
    rates: Rates | None
    backend: str
    normal: int

    @property
    def families(self) -> Sequence[Family]:
        """The families of discrete parameters, in the order of their columns."""
        return self.config.families

    @property
    def dim(self) -> int:
        """The columns of a candidate."""
        return self.normal + sum(family.columns for family in self.families)


# A constant of the structure, not a leaf of it: transforms such as vmap see the tensors of a state alone.
pytree.register_pytree_node(
    Settings,
    lambda settings: ([], settings),
    lambda _, settings: settings,
    serialized_type_name="cem.core.state.Settings",
)


class State(NamedTuple):
    """The state of a search, or of a batch of them; ``...`` stands for the batch dimensions.

    Attributes:
        distribution: Mean, standard deviation, averaged mean and best candidate, shape (..., 4, d).
        record: Best fitness so far; best fitness, mean and worst of the elites of the last generation; the
            number, from 1, of the last generation that failed, or 0: shape (..., 5), float64.
        generation: The number of generations so far, shape (), int64.
        factor: The lower-triangular L with covariance L L^T, shape (..., d, d); None: diagonal.
        paths: The evolution paths of step size and covariance, shape (..., 2, d); None: without.
        discrete: The tables of the families and the columns of the best candidate that they have, shape
            (..., T + columns), float64; None: no families.
        seed: Shape (...), int64: the 64 bits of the seed of each problem.
        variance_schedule: ``Z_t`` for t = 0 .. T - 1, shape (T,), float64; the last one holds from then on.
            None: 0.
        weights: By rank, float64: of the elites, shape (K,); with paths of all candidates, shape (N,), those
            of bad ones negative. None: the elites have equal ones.
        std_floor: The least standard deviation, shape (..., d); None: 0.
        low: Lower bounds, shape (..., d); None: no bounds.
        high: Upper bounds, like ``low``.
        integers: Lower and upper bounds of the parameters that are integers, infinite for the others, shape
            (2, d); None: no integers.
        settings: The constants.
    """

    distribution: Tensor
    record: Tensor
    generation: Tensor
    factor: Tensor | None
    paths: Tensor | None
    discrete: Tensor | None
    seed: Tensor
    variance_schedule: Tensor | None
    weights: Tensor | None
    std_floor: Tensor | None
    low: Tensor | None
    high: Tensor | None
    integers: Tensor | None
    settings: Settings

    @property
    def mean(self) -> Tensor:
        """``mu_t``, shape (..., d), and the likeliest values of the families, shape (..., dim)."""
        return self._whole(self._inside(self.distribution[..., MEAN, :]), "mode")

    @property
    def std(self) -> Tensor:
        """``sigma_t``: the square root of the covariance's diagonal; of the families 1 - the greatest p."""
        return self._whole(self.distribution[..., STD, :], "spread")

    @property
    def averaged_mean(self) -> Tensor:
        """``a_t``, like ``mean``."""
        return self._whole(self._inside(self.distribution[..., AVERAGED_MEAN, :]), "mode")

    @property
    def best(self) -> Tensor:
        """The fittest candidate so far, shape (..., dim); NaN before the first ``tell``."""
        return self._whole(self.distribution[..., BEST, :], "best")

    @property
    def best_fitness(self) -> Tensor:
        """Its fitness, shape (...), float64; NaN before the first ``tell``."""
        return self.record[..., BEST_FITNESS]

    def _whole(self, vector: Tensor, what: str) -> Tensor:
        """Return the numbers of the normal columns and those of the families."""
        if self.discrete is None:
            return vector
        if what == "best":
            parts = [self.discrete[..., -sum(each.columns for each in self.settings.families) :]]
        else:
            parts = [getattr(family, what)(table) for family, table in tables_of(self)]
        normal = vector[..., : self.settings.normal]
        return torch.cat([normal, *(part.to(vector.dtype) for part in parts)], dim=-1)

    def _inside(self, vector: Tensor) -> Tensor:
        bounds = bounds_of(self)
        return into_box(vector, *bounds) if bounds is not None and is_transformed(self) else vector


# Functions, for older versions of Dynamo read no property of a NamedTuple.
def bounds_of(state: State) -> tuple[Tensor, Tensor] | None:
    """Return lower and upper bounds; None: no bounds."""
    return None if state.low is None or state.high is None else (state.low, state.high)


def with_integers(state: State, x: Tensor) -> Tensor:
    """Return candidates, or a mean, with the nearest integers within the bounds where parameters are."""
    if state.integers is None:
        return x
    low, high = state.integers
    numbers = x[..., : low.shape[-1]]
    numbers = torch.where(low.isnan(), numbers, torch.minimum(torch.maximum(numbers.round(), low), high))
    return numbers if numbers.shape == x.shape else torch.cat([numbers, x[..., low.shape[-1] :]], dim=-1)


def tables_of(state: State) -> list[tuple[Family, Tensor]]:
    """Return the families with their tables, shape (..., size)."""
    families = state.settings.families
    if state.discrete is None:
        return []
    sizes = [each.rows[0] * each.rows[1] for each in families]
    return list(zip(families, state.discrete[..., : sum(sizes)].split(sizes, dim=-1), strict=True))


def is_transformed(state: State) -> bool:
    """Return whether the distribution lives in a space without bounds, which a map takes into the box."""
    return state.low is not None and state.settings.config.bound_handling == "transform"


def is_fused(state: State) -> bool:
    """Return whether ``cma_update`` and ``draw_correlated`` take the search."""
    settings, factor = state.settings, state.factor
    return (
        factor is not None
        and state.paths is not None
        and settings.backend != "torch"
        and factor.shape[-1] <= MAX_DIMENSIONS
        and settings.population_size <= MAX_POPULATION
    )


CHANGING = State._fields[:6]
"""The fields that a generation changes; the others are constants of a search."""


def init(
    mean: Any,
    std: Any,
    population_size: int | None = None,
    *,
    maximize: bool,
    config: CEMConfig | None = None,
    bounds: Any = None,
    backend: str = "auto",
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    seed: Any = None,
    _ahead: int = 10_000,
) -> State:
    """Return the first state of a search; arguments and errors are those of ``CrossEntropyMethod``.

    A schedule of extra variance is called for 10,000 generations, or until it fails; the last variance holds
    from then on.
    """
    check_flags(maximize=maximize)
    if dtype is None:
        double = getattr(mean, "dtype", None) in (torch.float64, np.float64)
        dtype = torch.float64 if double else torch.float32
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"expected torch.float32 or torch.float64 for dtype, got {dtype!r}")
    where = check_device("cpu" if device is None else device)
    if isinstance(mean, np.ndarray) and where.type != "cpu":
        raise ValueError(f"expected a tensor as mean on device {str(where)!r}, got a NumPy array")
    families = getattr(config, "families", ())
    is_discrete = families and np.shape(mean)[-1] == 0
    if is_discrete:
        mean, std = np.zeros((*np.shape(mean)[:-1], 1)), 0.0
    start = check_vector("mean", mean, None, dtype, where)
    first_std = check_vector("std", std, start.shape, dtype, where)
    check_distribution(start, first_std)
    limits = check_bounds(bounds, start)
    *batch_shape, dim = start.shape
    normal = 0 if is_discrete else dim
    config = CEMConfig.chosen(dim, limits is not None) if config is None else config
    if not isinstance(config, CEMConfig):
        raise TypeError(f"expected a CEMConfig for config, got {type(config).__name__}")
    integers = config.integers_of(normal)
    whole = _integers(integers, start, limits) if integers else None
    if whole is not None and limits is not None:  # an integer is clamped where it is rounded
        is_real = whole[0].isnan()
        low, high = torch.where(is_real, limits[0], -math.inf), torch.where(is_real, limits[1], math.inf)
        limits = (low, high) if bool((low.isfinite() | high.isfinite()).any()) else None
    columns = sum(family.columns for family in families)
    if population_size is None:
        population_size = config.population_of(normal + columns)
    population_size = check_integer("population_size", population_size, MIN_ELITES, (1 << 31) - 1)
    elites = config.elites_of(population_size)
    ranked = rank_weights(elites, config.weights)
    learning = rates(dim, ranked, diagonal=config.covariance == "diagonal") if config.paths else None
    if learning is not None:
        ranked = all_weights(dim, population_size, ranked, learning)
    if limits is not None and config.bound_handling == "transform":
        start, first_std = start_out_of_box(start, first_std, *limits)
    floor = None
    if config.std_floor > 0.0 or config.floor_share > 0.0:
        floor = (first_std * config.floor_share).clamp(min=config.std_floor)
    if whole is not None:
        # Of all integers of a population one is expected to be another than the nearest to the mean: the
        # margin of R. Hamano et al., CMA-ES with Margin, GECCO 2022.
        margin = 0.5 / NormalDist().inv_cdf(1 - 0.5 / (population_size * dim))
        least = torch.where(whole[0].isnan(), 0.0, margin).to(start)
        floor = least.expand_as(start) if floor is None else torch.maximum(floor, least)
    discrete = None
    if families:
        tables = torch.cat([family.start() for family in families]).to(where)
        best = torch.full((columns,), math.nan).to(tables)
        discrete = torch.cat([tables, best]).expand(*batch_shape, -1).clone()
    record = torch.full((*batch_shape, 5), math.nan, dtype=torch.float64, device=where)
    record[..., FAILED] = 0.0
    fused = config.paths and config.covariance == "full" and dim <= MAX_DIMENSIONS
    needed = (*(CMA_OPERATORS if fused else OPERATORS), *(("discrete",) if families else ()))
    chosen = choose_backend(backend, where, needed)
    variances = [] if config.schedule == NamedSchedule() else extended([], config.schedule, 1, _ahead)
    return State(
        distribution=torch.stack([start, first_std, start, torch.full_like(start, math.nan)], dim=-2),
        record=record,
        generation=torch.zeros((), dtype=torch.int64, device=where),
        factor=torch.diag_embed(first_std) if config.covariance == "full" else None,
        paths=start.new_zeros(*batch_shape, 2, dim) if config.paths else None,
        discrete=discrete,
        seed=problem_seeds(seed, torch.Size(batch_shape), where),
        variance_schedule=doubles(variances, where) if variances else None,
        weights=None if config.weights == "equal" and not config.paths else doubles(ranked, where),
        std_floor=floor,
        low=None if limits is None else limits[0],
        high=None if limits is None else limits[1],
        integers=whole,
        settings=Settings(
            *(config, population_size, elites, maximize, learning, chosen),
            normal=normal,
        ),
    )


def _integers(integers: list[int], mean: Tensor, limits: tuple[Tensor, Tensor] | None) -> Tensor:
    """Return ``State.integers`` for the indices of parameters."""
    is_integer = torch.zeros(mean.shape[-1], dtype=torch.bool)
    is_integer[integers] = True
    infinite = torch.full_like(mean, math.inf)
    low, high = (-infinite, infinite) if limits is None else limits
    ends = (low.ceil(), high.floor())
    return torch.stack([torch.where(is_integer.to(mean.device), end, math.nan) for end in ends])


def doubles(numbers: list[float], device: torch.device) -> Tensor:
    """Return numbers as float64 on a device; does not wait for it."""
    return torch.tensor(numbers, dtype=torch.float64).to(device, non_blocking=True)


def problem_seeds(seed: Any, batch_shape: torch.Size, device: torch.device) -> Tensor:
    """Return the 64 bits of the seed of each problem, shape ``batch_shape``, int64."""
    seed = draw_seed(seed)
    if isinstance(seed, (Tensor, np.ndarray)):
        seed = seed.tolist()
    if isinstance(seed, (list, tuple)):
        # As objects: NumPy makes floats of numbers on both sides of 2**63.
        each = np.array(seed, dtype=object)
        if each.shape != tuple(batch_shape):
            raise ValueError(f"expected one seed, or seeds of shape {tuple(batch_shape)}, got {each.shape}")
        seeds = [check_integer("seed", one, 0, 2**64 - 1) for one in each.reshape(-1).tolist()]
    else:
        seed = check_integer("seed", seed, 0, 2**64 - 1)
        problems = range(math.prod(batch_shape))
        seeds = [mix_seed(seed, problem) for problem in problems] if batch_shape else [seed]
    return torch.tensor([signed64(each) for each in seeds], dtype=torch.int64).reshape(batch_shape).to(device)
