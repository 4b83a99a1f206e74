"""The state of a search as a tuple of tensors; ``cem.core.start`` makes the first one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from cem.core.adaptation import Rates
from cem.core.bounds import Box, into_box
from cem.core.config import CEMConfig
from cem.families.family import Family
from kernels.ops.cma_update import MAX_DIMENSIONS, MAX_POPULATION

# Rows of ``State.distribution``.
MEAN, STD, AVERAGED_MEAN, BEST = range(4)
# Columns of ``State.record``.
BEST_FITNESS, GENERATION_BEST, ELITE_MEAN, ELITE_THRESHOLD, FAILED = range(5)


@dataclass(frozen=True)
class Settings:
    """The constants of a search that are not tensors.

    Attributes:
        config: The settings of the method.
        population_size: N, the number of candidates per generation.
        num_elites: K, the number of elites.
        maximize: Whether a greater fitness is better.
        rates: The learning rates if the search has evolution paths, otherwise None.
        backend: ``"cpu"`` or ``"cuda"`` for the operators of ``kernels``; ``"torch"`` for
            PyTorch.
        normal: The number of columns that are drawn from the normal distribution. They come
            first; the families of discrete parameters draw the others. If it is 0, the state
            still contains a normal distribution of one dimension, from which nothing is drawn.
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
        """The number of columns of a candidate."""
        return self.normal + self.config.num_discrete


# The settings are part of the structure of a state and not a leaf. So transforms such as vmap
# only see the tensors.
pytree.register_pytree_node(
    Settings,
    lambda settings: ([], settings),
    lambda _, settings: settings,
    serialized_type_name="cem.core.state.Settings",
)


class State(NamedTuple):
    """The state of a search, or of a batch of searches; ``...`` is the shape of the batch.

    Attributes:
        distribution: Mean, standard deviation, averaged mean and best candidate, shape
            (..., 4, d).
        record: Five numbers, shape (..., 5), float64: the best fitness so far; the best, mean
            and worst fitness of the last generation's elites; the last generation in which
            every candidate failed, counted from 1, or 0 if there is none.
        generation: The number of generations so far, shape (), int64.
        factor: The lower triangular factor L of the covariance L L^T, shape (..., d, d); None
            if the covariance is diagonal.
        paths: The evolution paths of step size and covariance, shape (..., 2, d), or None.
        discrete: The tables of all families, followed by the discrete columns of the best
            candidate, shape (..., T + columns), float64; None without families.
        seed: The 64 bits of each problem's seed, shape (...), int64.
        variance_schedule: The extra variance ``Z_t`` for t = 0 .. T - 1, shape (T,), float64.
            The last value is used for all later generations. None means 0.
        weights: The weights by rank, float64. Without paths they are the weights of the elites,
            shape (K,). With paths they are the weights of all candidates, shape (N,), negative
            for the worse ones. None means equal weights of the elites.
        std_floor: The smallest standard deviation, shape (..., d); None means 0.
        low: The lower bounds, shape (..., d); None without bounds.
        high: The upper bounds, like ``low``.
        integers: The lower and upper bounds of the parameters that are integers, shape (2, d);
            NaN for other parameters. None without integers.
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
        """The mean ``mu_t`` and the likeliest values of the families, shape (..., dim)."""
        return self._point(MEAN)

    @property
    def std(self) -> Tensor:
        """The standard deviation ``sigma_t`` and the ``spread`` of the families, (..., dim)."""
        normal = self.distribution[..., STD, :]
        return self._join(normal, [family.spread(table) for family, table in tables_of(self)])

    @property
    def averaged_mean(self) -> Tensor:
        """The averaged mean ``a_t``, like ``mean``."""
        return self._point(AVERAGED_MEAN)

    @property
    def best(self) -> Tensor:
        """The fittest candidate so far, shape (..., dim); NaN before the first ``tell``."""
        normal = self.distribution[..., BEST, :]
        if self.discrete is None:
            return normal
        columns = self.settings.dim - self.settings.normal
        return self._join(normal, [self.discrete[..., -columns:]])

    @property
    def best_fitness(self) -> Tensor:
        """The fitness of ``best``, shape (...), float64; NaN before the first ``tell``."""
        return self.record[..., BEST_FITNESS]

    def _join(self, normal: Tensor, discrete: list[Tensor]) -> Tensor:
        """Return the columns of the normal distribution, followed by those of the families."""
        if not discrete:
            return normal
        columns = [part.to(normal.dtype) for part in discrete]
        return torch.cat([normal[..., : self.settings.normal], *columns], dim=-1)

    def _point(self, row: int) -> Tensor:
        """Return a row of the distribution within the bounds, and the likeliest values."""
        normal = self.distribution[..., row, :]
        box = bounds_of(self)
        if box is not None:
            is_transformed = self.settings.config.bound_handling == "transform"
            # Without a transform, rounding may have put an average of candidates outside.
            normal = into_box(normal, *box) if is_transformed else normal.clamp(*box)
        return self._join(normal, [family.mode(table) for family, table in tables_of(self)])


# The fields that a generation changes; the others are constants of a search.
CHANGING = State._fields[:6]


# These are functions because older versions of Dynamo cannot read a property of a NamedTuple.
def bounds_of(state: State) -> Box | None:
    """Return the lower and upper bounds, or None if the search has none."""
    if state.low is None or state.high is None:
        return None
    return state.low, state.high


def with_integers(state: State, x: Tensor) -> Tensor:
    """Round the parameters that are integers to the nearest integers within the bounds.

    ``x`` is a mean or a population, shape (..., d). Discrete columns after the d-th are not
    changed.
    """
    if state.integers is None:
        return x
    low, high = state.integers
    num_numbers = low.shape[-1]
    if x.dim() > low.dim():  # all candidates of a population have the same bounds
        low = low.unsqueeze(-2)
        high = high.unsqueeze(-2)
    numbers = x[..., :num_numbers]
    rounded = torch.minimum(torch.maximum(numbers.round(), low), high)
    # The bounds of a real parameter are NaN.
    numbers = torch.where(low.isnan(), numbers, rounded)
    if numbers.shape == x.shape:
        return numbers
    return torch.cat([numbers, x[..., num_numbers:]], dim=-1)


def tensors_of(state: State, names: Sequence[str] = CHANGING) -> dict[str, Tensor]:
    """Return the tensors of a state, keyed by their names, without those that are None."""
    tensors = {name: getattr(state, name) for name in names}
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def tables_of(state: State) -> list[tuple[Family, Tensor]]:
    """Return every family and its table, shape (..., rows * values)."""
    if state.discrete is None:
        return []
    families = state.settings.families
    sizes = [family.rows[0] * family.rows[1] for family in families]
    tables = state.discrete[..., : sum(sizes)].split(sizes, dim=-1)
    return list(zip(families, tables, strict=True))


def transformed_bounds(state: State) -> Box | None:
    """Return the bounds if a smooth map transforms the candidates into them, else None."""
    is_transformed = state.settings.config.bound_handling == "transform"
    return bounds_of(state) if is_transformed else None


def is_fused(state: State) -> bool:
    """Return whether ``cma_update`` and ``draw_correlated`` can run the search."""
    return (
        state.factor is not None
        and state.paths is not None
        and state.settings.backend != "torch"
        and state.factor.shape[-1] <= MAX_DIMENSIONS
        and state.settings.population_size <= MAX_POPULATION
    )
