"""The cross-entropy method as pure functions of a state: ``init``, ``ask``, ``tell``.

    candidates, state = ask(state)               x_i ~ N(mu_t, Sigma_t)                     i = 1 .. N
    state = tell(state, candidates, f(candidates))

A state is a NamedTuple of tensors with any leading batch dimensions: each of thousands of problems has its
own distribution, seed and record, and one call moves all of them. Nothing is changed in place and nothing
waits for the device, so the functions work in ``torch.compile(fullgraph=True)`` and in CUDA graphs.

>>> import torch
>>> from cem.functional import ask, init, tell
>>> state = init(torch.full((8, 5), 3.0), 1.0, 100, maximize=False, seed=1)  # 8 problems
>>> for _ in range(40):
...     candidates, state = ask(state)  # (8, 100, 5)
...     state = tell(state, candidates, candidates.square().sum(-1))  # fitness: (8, 100)
>>> bool((state.mean.abs() < 1e-2).all())
True

``CrossEntropyMethod`` wraps them with checks, names, checkpoints and errors; see it for the equations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from cem.adaptation import Rates, factorised, of_elites, with_paths
from cem.bounds import into_box, keep_inside, out_of_box
from kernels.ops.cem_update import cem_update, cem_update_reference
from kernels.ops.cma_update import MAX_DIMENSIONS, MAX_POPULATION, cma_update, draw_correlated
from kernels.ops.normal import sample_normal_rows

MEAN, STD, AVERAGED_MEAN, BEST = range(4)
"""Rows of ``State.distribution``."""
BEST_FITNESS, GENERATION_BEST, ELITE_MEAN, ELITE_THRESHOLD, REFUSED = range(5)
"""Columns of ``State.record``."""
_AHEAD = 10_000  # generations with an extra variance of their own


@dataclass(frozen=True)
class Settings:
    """The constants of a search that are no tensors; see ``CrossEntropyMethod`` for their meaning.

    Attributes:
        population_size: N, the candidates a generation.
        num_elites: K, the elites among them.
        maximize: Whether a greater fitness is better.
        covariance: ``"diagonal"`` or ``"full"``.
        rates: The learning rates of evolution paths; None: without paths.
        variance_about: ``"old_mean"``, ``"new_mean"`` or ``"new_mean_unbiased"``.
        smoothing: The weight of the elites against the old mean, in (0, 1].
        std_smoothing: The same for the standard deviation, or for the covariance.
        mean_averaging: ``beta`` of the averaged mean.
        bounds: How candidates are kept within the bounds: one of ``cem.bounds.BOUND_HANDLING``.
        backend: ``"cpu"`` or ``"cuda"``: the operators of ``kernels``; ``"torch"``: PyTorch operations.
    """

    population_size: int
    num_elites: int
    maximize: bool
    covariance: str = "diagonal"
    rates: Rates | None = None
    variance_about: str = "old_mean"
    smoothing: float = 1.0
    std_smoothing: float = 1.0
    mean_averaging: float = 0.0
    bounds: str = "clamp"
    backend: str = "torch"


# A constant of the structure, not a leaf of it: transforms such as vmap see the tensors of a state alone.
pytree.register_pytree_node(
    Settings,
    lambda settings: ([], settings),
    lambda _, settings: settings,
    serialized_type_name="cem.functional.Settings",
)


class State(NamedTuple):
    """The state of a search, or of a batch of them; ``...`` stands for the batch dimensions.

    Attributes:
        distribution: Mean, standard deviation, averaged mean and best candidate, shape (..., 4, d).
        record: Best fitness so far; best fitness, mean and worst of the elites of the last generation; the
            number, from 1, of the last refused generation, or 0: shape (..., 5), float64.
        generation: The generations told, shape (), int64.
        seed: Shape (...), int64: the 64 bits of the seed of each problem.
        extra_variance: ``Z_t`` for t = 0 .. T - 1, shape (T,), float64; the last one holds from then on.
            None: 0.
        weights: The weights of the elites by rank, shape (K,), float64; None: all the same.
        std_floor: The least standard deviation, shape (..., d); None: 0.
        low: Lower bounds, shape (..., d); None: no bounds.
        high: Upper bounds, like ``low``.
        all_weights: The weights of all candidates by rank, with evolution paths, shape (N,), float64; those
            of bad ones are negative. None: without paths.
        factor: The lower-triangular L with covariance L L^T, shape (..., d, d); None: diagonal.
        paths: The evolution paths of step size and covariance, shape (..., 2, d); None: without.
        settings: The constants.
    """

    distribution: Tensor
    record: Tensor
    generation: Tensor
    seed: Tensor
    extra_variance: Tensor | None
    weights: Tensor | None
    std_floor: Tensor | None
    all_weights: Tensor | None
    low: Tensor | None
    high: Tensor | None
    factor: Tensor | None
    paths: Tensor | None
    settings: Settings

    @property
    def mean(self) -> Tensor:
        """``mu_t``, shape (..., d)."""
        return self._inside(self.distribution[..., MEAN, :])

    @property
    def std(self) -> Tensor:
        """``sigma_t``, shape (..., d): the square root of the covariance's diagonal."""
        return self.distribution[..., STD, :]

    @property
    def averaged_mean(self) -> Tensor:
        """``a_t``, shape (..., d)."""
        return self._inside(self.distribution[..., AVERAGED_MEAN, :])

    @property
    def best(self) -> Tensor:
        """The fittest candidate told so far, shape (..., d); NaN before the first ``tell``."""
        return self.distribution[..., BEST, :]

    @property
    def best_fitness(self) -> Tensor:
        """Its fitness, shape (...), float64; NaN before the first ``tell``."""
        return self.record[..., BEST_FITNESS]

    def _inside(self, vector: Tensor) -> Tensor:
        if self.low is None or self.high is None or self.settings.bounds != "transform":
            return vector
        return into_box(vector, self.low, self.high)


def init(mean: Any, std: Any, population_size: int, *, maximize: bool, **options: Any) -> State:
    """Return the first state of a search.

    Args:
        mean: The first mean, shape (..., d): every leading dimension is a batch of problems.
        std: The first standard deviation, broadcastable to ``mean``.
        population_size: N, ``>= 2``.
        maximize: Whether a greater fitness is better.
        options: The others of ``CrossEntropyMethod`` but ``sampler``, which has the meaning and the errors. A
            schedule of extra variance is called for 10,000 generations, or until it fails; the last
            variance holds from then on.
    """
    from cem.optimizer import CrossEntropyMethod

    if "sampler" in options:
        raise TypeError("expected no sampler: tell() takes candidates however they were drawn")
    optimizer = CrossEntropyMethod(mean, std, population_size, maximize=maximize, **options)
    optimizer._cover(1, ahead=_AHEAD)
    return optimizer.state


def ask(state: State) -> tuple[Tensor, State]:
    """Draw a generation.

    Args:
        state: The state. With backend ``"torch"`` the noise is that of torch's global generator; with the
            operators it is a function of (seed, generation): asking again gives the same.

    Returns:
        The candidates, shape (..., N, d), and the state.
    """
    return draw(state, _randn if state.settings.backend == "torch" else operator_sample), state


def draw(state: State, sample: Sample) -> Tensor:
    """Return the candidates of a generation, shape (..., N, d).

    Args:
        state: The state.
        sample: Draws N(mean, std^2), clamped to bounds; see ``Sample``.
    """
    settings = state.settings
    bounds = None if state.low is None or state.high is None else (state.low, state.high)
    if state.factor is None and (bounds is None or settings.bounds == "clamp"):
        return sample(state, state.distribution, bounds)
    mean, std = state.distribution[..., MEAN, :], state.distribution[..., STD, :]
    if state.factor is None:
        x = sample(state, state.distribution, None)
    elif sample is operator_sample and _is_fused(state):
        clamped = bounds if settings.bounds == "clamp" else None
        x = draw_correlated(
            *(state.distribution, state.factor, settings.population_size),
            seed=state.seed,
            generation=state.generation,
            bounds=clamped,
        )
        if clamped is not None:
            return x
    else:
        standard = torch.stack([torch.zeros_like(mean), torch.ones_like(std)], dim=-2)
        noise = sample(state, standard, None)
        with torch.autocast(mean.device.type, enabled=False):
            x = torch.add(noise @ state.factor.mT, mean.unsqueeze(-2))
    return x if bounds is None else keep_inside(x, mean, std, *bounds, settings.bounds)


Sample = Callable[[State, Tensor, "tuple[Tensor, Tensor] | None"], Tensor]
"""Maps (state, rows, bounds) to draws of N(rows[..., 0, :], rows[..., 1, :]^2), shape (..., N, d), clamped to
the bounds."""


def operator_sample(state: State, rows: Tensor, bounds: tuple[Tensor, Tensor] | None) -> Tensor:
    """Draw by the operator ``sample_normal_rows``; a ``Sample``."""
    return sample_normal_rows(
        rows, state.settings.population_size, seed=state.seed, generation=state.generation, bounds=bounds
    )


def _randn(state: State, rows: Tensor, bounds: tuple[Tensor, Tensor] | None) -> Tensor:
    mean, std = rows[..., MEAN, :], rows[..., STD, :]
    shape = (*mean.shape[:-1], state.settings.population_size, mean.shape[-1])
    noise = torch.randn(shape, dtype=mean.dtype, device=mean.device)
    x = mean.unsqueeze(-2) + std.unsqueeze(-2) * noise
    return x if bounds is None else keep_inside(x, mean, std, *bounds, "clamp")


def tell(state: State, candidates: Tensor, fitness: Tensor) -> State:
    """Move the distribution towards the elites, and count the generation.

    Args:
        state: The state that ``ask`` drew the candidates of.
        candidates: The candidates evaluated, shape (..., N, d), of the state's dtype and device.
        fitness: Their fitness, shape (..., N), any real dtype. NaN and the infinity on the bad side are
            failures, never elites; a problem without a single success keeps its distribution, and its
            number of the generation is in ``record``.

    Returns:
        The next state.
    """
    return told(state, candidates, fitness)[0]


def told(
    state: State, asked: Tensor, fitness: Tensor, evaluated: Tensor | None = None
) -> tuple[State, Tensor]:
    """Return the next state as ``tell``, and the indices of the elites, shape (..., K).

    Args:
        state: The state.
        asked: The candidates of ``ask``.
        fitness: The fitness.
        evaluated: What was evaluated instead of them. A candidate with a coordinate that is not finite has
            failed.
    """
    settings = state.settings
    candidates = asked
    if evaluated is not None:
        candidates = evaluated.to(asked.device, asked.dtype)
        fitness = fitness if fitness.is_floating_point() else fitness.double()
        fitness = fitness.masked_fill(~candidates.isfinite().all(-1), math.nan)
    in_box = candidates
    if state.low is not None and state.high is not None and settings.bounds == "transform":
        candidates = out_of_box(in_box, state.low.unsqueeze(-2), state.high.unsqueeze(-2))
        # Back from the box a coordinate differs by its rounding: one that is that of the mean stays there.
        still = in_box == state.mean.unsqueeze(-2)
        candidates = torch.where(still, state.distribution[..., MEAN, :].unsqueeze(-2), candidates)
    if _is_fused(state):
        fused: Any = cma_update
        distribution, record, generation, factor, paths, elites = fused(
            *(fitness, candidates, state.distribution, state.record, state.generation),
            *(state.factor, state.paths, settings.num_elites),
            maximize=settings.maximize,
            rates=settings.rates,
            weights=state.all_weights,
            extra_variance=state.extra_variance,
            std_floor=state.std_floor,
            smoothing=settings.smoothing,
            mean_averaging=settings.mean_averaging,
        )
        if candidates is not in_box:
            distribution = _with_best_of(in_box, candidates, fitness, distribution, record, state.record)
        return State(distribution, record, generation, *state[3:-3], factor, paths, settings), elites
    update: Any = cem_update
    if settings.backend == "torch":
        update = partial(cem_update_reference, fixed_order=False)
    distribution, record, generation, elites = update(
        fitness,
        candidates,
        state.distribution,
        state.record,
        state.generation,
        settings.num_elites,
        maximize=settings.maximize,
        extra_variance=state.extra_variance,
        weights=state.weights,
        std_floor=state.std_floor,
        variance_about=settings.variance_about,
        smoothing=settings.smoothing,
        std_smoothing=settings.std_smoothing,
        mean_averaging=settings.mean_averaging,
        ranked=settings.covariance == "full",
    )
    if candidates is not in_box:
        distribution = _with_best_of(in_box, candidates, fitness, distribution, record, state.record)
    new = State(distribution, record, generation, *state[3:])  # faster than _replace
    if settings.covariance == "full" or settings.rates is not None:
        new = _adapted(state, new, candidates, fitness, elites)
    return new, elites


def _is_fused(state: State) -> bool:
    """Return whether the operators of ``kernels.ops.cma_update`` take a state."""
    settings, factor = state.settings, state.factor
    return (
        factor is not None
        and settings.backend != "torch"
        and settings.rates is not None
        and factor.shape[-1] <= MAX_DIMENSIONS
        and settings.population_size <= MAX_POPULATION
    )


def _with_best_of(
    in_box: Tensor,
    candidates: Tensor,
    fitness: Tensor,
    distribution: Tensor,
    record: Tensor,
    before: Tensor,
) -> Tensor:
    """Return a distribution whose new best candidate is the one in the box, as it was evaluated."""
    best, best_fitness = distribution[..., BEST, :], record[..., BEST_FITNESS]
    # Of points too near to a face to be told apart some are not as fit.
    is_best = (candidates == best.unsqueeze(-2)).all(-1) & (fitness.double() == best_fitness.unsqueeze(-1))
    improved = (best_fitness != before[..., BEST_FITNESS]) & is_best.any(-1)
    index = is_best.int().argmax(-1)[..., None, None].expand(*best.shape[:-1], 1, best.shape[-1])
    best = torch.where(improved.unsqueeze(-1), in_box.gather(-2, index).squeeze(-2), best)
    return torch.cat([distribution[..., :BEST, :], best.unsqueeze(-2)], dim=-2)


def _adapted(old: State, new: State, candidates: Tensor, fitness: Tensor, elites: Tensor) -> State:
    """Replace the standard deviations of the update by what ``cem.adaptation`` makes of the candidates."""
    settings, rates = old.settings, old.settings.rates
    mean, std = old.distribution[..., MEAN, :].double(), old.distribution[..., STD, :].double()
    factor = std if old.factor is None else old.factor.double()
    if old.paths is not None and old.all_weights is not None and rates is not None:
        scores = fitness
        if fitness.is_floating_point():  # sorting puts NaN above infinity
            scores = fitness.masked_fill(_failed(fitness, settings.maximize), _worst(settings.maximize))
        order = torch.sort(scores, dim=-1, descending=settings.maximize, stable=True).indices
        rows, weights = _ranked(candidates, fitness, order, old.all_weights, settings.maximize)
        covariance, paths = with_paths(
            factor,
            rows,
            weights,
            mean,
            new.distribution[..., MEAN, :].double(),
            old.paths.double(),
            old.generation,
            rates,
        )
    else:
        equal = torch.ones(elites.shape[-1], dtype=torch.float64, device=elites.device)
        positive = equal if old.weights is None else old.weights
        rows, weights = _ranked(candidates, fitness, elites, positive, settings.maximize)
        weights = weights / weights.sum(-1, keepdim=True)
        covariance, paths = of_elites(factor, rows, weights, mean, settings.variance_about), None
        covariance = factor @ factor.mT + settings.std_smoothing * (covariance - factor @ factor.mT)
    variances = covariance if old.factor is None else covariance.diagonal(dim1=-2, dim2=-1)
    more = torch.zeros_like(variances)
    if old.extra_variance is not None:
        more = more + old.extra_variance[old.generation.clamp(max=len(old.extra_variance) - 1)]
    if old.std_floor is not None:
        more = torch.maximum(more, old.std_floor.double().square() - variances)
    refused = (new.record[..., REFUSED] == new.generation).unsqueeze(-1)
    if old.factor is None:
        moved = (variances + more).sqrt()
        next_std, next_factor = torch.where(refused | ~moved.isfinite(), std, moved), None
    else:
        found = factorised(covariance + torch.diag_embed(more), factor)
        found = torch.where(refused.unsqueeze(-1), factor, found)
        next_std, next_factor = found.square().sum(-1).sqrt(), _rounded(found, old.factor.dtype)
    rest = new.distribution.unbind(-2)
    next_std = _rounded(next_std, rest[STD].dtype)
    distribution = torch.stack([rest[MEAN], next_std, *rest[AVERAGED_MEAN:]], dim=-2)
    if paths is not None and old.paths is not None:
        kept = refused.unsqueeze(-1) | ~paths.isfinite()
        paths = _rounded(torch.where(kept, old.paths.double(), paths), old.paths.dtype)
    return State(distribution, *new[1:-3], next_factor, paths, settings)


def _ranked(
    candidates: Tensor, fitness: Tensor, order: Tensor, weights: Tensor, maximize: bool
) -> tuple[Tensor, Tensor]:
    """Return candidates in an order, float64, and their weights, which are 0 for those that failed."""
    rows = candidates.gather(-2, order.unsqueeze(-1).expand(*order.shape, candidates.shape[-1])).double()
    failed = _failed(fitness, maximize).gather(-1, order)
    return torch.where(failed.unsqueeze(-1), 0.0, rows), torch.where(failed, 0.0, weights)


def _rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a finite tensor of another dtype: what is too large becomes the largest number."""
    largest = torch.finfo(dtype).max
    return x.clamp(-largest, largest).to(dtype)


def _failed(fitness: Tensor, maximize: bool) -> Tensor:
    return fitness.isnan() | (fitness == _worst(maximize))


def _worst(maximize: bool) -> float:
    return -math.inf if maximize else math.inf
