"""One generation: ``draw`` makes candidates from the state, ``tell`` updates the state.

``cem.functional`` exports both functions; ``cem.optimizer`` has the equations.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cem.core.adaptation import elite_covariance
from cem.core.backend import mix_seed, multiply
from cem.core.bounds import Box, keep_inside, out_of_box
from cem.core.state import (
    BEST,
    MEAN,
    STD,
    State,
    bounds_of,
    is_fused,
    tables_of,
    transformed_bounds,
    with_integers,
)
from cem.families.family import Family, OperatorFamily
from kernels.ops.cem_update import cem_update, cem_update_reference
from kernels.ops.cem_update.reference import round_to
from kernels.ops.cma_update import cma_update, cma_update_reference, draw_correlated
from kernels.ops.cma_update.reference import (
    adapt_covariance,
    extra_variances,
    factorise,
    rank_rows,
)
from kernels.ops.discrete.tables import (
    Move,
    update_tables,
    update_tables_by,
    update_tables_reference,
)
from kernels.ops.normal import sample_normal_rows
from kernels.ops.philox import signed64

Sample = Callable[[State, Tensor, int], Tensor]
"""Maps (state, rows, N) to N draws with the mean rows[..., 0, :] and the standard deviation
rows[..., 1, :], shape (..., N, d)."""


def operator_sample(state: State, rows: Tensor, size: int) -> Tensor:
    """Draw with the operator ``sample_normal_rows``; a ``Sample``."""
    return sample_normal_rows(rows, size, seed=state.seed, generation=state.generation)


def draw(state: State, sample: Sample, size: int | None = None) -> Tensor:
    """Return the first ``size`` candidates of a generation, shape (..., size, dim).

    ``sample`` draws the first columns from the normal distribution. The columns of every family
    of discrete parameters follow. Each family draws its columns from its table of
    probabilities. If ``size`` is None, it is the population size.
    """
    if size is None:
        size = state.settings.population_size
    dtype = state.distribution.dtype
    columns = []
    # `normal` is the number of columns that the normal distribution has.
    if state.settings.normal:
        columns.append(with_integers(state, _draw_normal(state, sample, size)))
    for number, (family, table) in enumerate(tables_of(state)):
        values = family.sample(
            table,
            size,
            seed=_seed_of_family(state, number),
            generation=state.generation,
            dtype=dtype,
            backend=state.settings.backend,
        )
        _check_shape(family, "sample", values, (*table.shape[:-1], size, family.columns))
        columns.append(values.to(dtype))
    return columns[0] if len(columns) == 1 else torch.cat(columns, dim=-1)


def _seed_of_family(state: State, number: int) -> Tensor:
    """Return the seed of a family; two families of one kind must have different noise."""
    # The first family has the seed of the search.
    return state.seed ^ signed64(mix_seed(number, 0)) if number > 0 else state.seed


def _draw_normal(state: State, sample: Sample, size: int) -> Tensor:
    """Draw the columns of the normal distribution within the bounds, shape (..., size, d).

    ``sample`` is a function that draws independent dimensions. If it is ``operator_sample``, a
    compiled operator draws the candidates, and can also clamp them to the bounds. It supports a
    full covariance only in small searches, for which ``is_fused`` returns True.
    """
    bounds = bounds_of(state)
    handling = state.settings.config.bound_handling
    if sample is operator_sample and (state.factor is None or is_fused(state)):
        if handling == "clamp":
            return _draw_by_operator(state, size, bounds)
        x = _draw_by_operator(state, size, None)
    else:
        x = _draw_by_sample(state, sample, size)
    if bounds is None:
        return x
    mean = state.distribution[..., MEAN, :]
    std = state.distribution[..., STD, :]
    return keep_inside(x, mean, std, *bounds, handling)


def _draw_by_operator(state: State, size: int, bounds: Box | None) -> Tensor:
    """Draw with the operator for this covariance, which clamps to the bounds if there are any.

    The operator for a full covariance only supports searches for which ``is_fused`` is true.
    """
    rows = state.distribution
    seed = state.seed
    generation = state.generation
    if state.factor is None:
        return sample_normal_rows(rows, size, seed=seed, generation=generation, bounds=bounds)
    return draw_correlated(
        rows, state.factor, size, bounds=bounds, seed=seed, generation=generation
    )


def _draw_by_sample(state: State, sample: Sample, size: int) -> Tensor:
    """Draw with ``sample``, which only draws independent dimensions.

    With a covariance L L^T the candidates are mean + L noise.
    """
    if state.factor is None:
        return sample(state, state.distribution, size)
    mean = state.distribution[..., MEAN, :]
    standard_normal = torch.stack([torch.zeros_like(mean), torch.ones_like(mean)], dim=-2)
    noise = sample(state, standard_normal, size)
    return multiply(noise, state.factor.mT) + mean.unsqueeze(-2)


def tell(state: State, candidates: Tensor, fitness: Tensor) -> State:
    """Return the state after a generation: the distribution moves towards the elites.

    Candidates have shape (..., N, dim) and the dtype and device of the state, fitness (..., N)
    any real dtype. A candidate whose fitness is NaN, or infinite on the bad side, has failed
    and is never an elite. If all candidates of a problem fail, it keeps its distribution, and
    its ``record`` stores the number of the generation.
    """
    # A state with gradients would keep the graph of every generation.
    if candidates.requires_grad:
        candidates = candidates.detach()
    if fitness.requires_grad:
        fitness = fitness.detach()
    if state.discrete is not None:
        return _update_families(state, candidates, fitness)
    box = transformed_bounds(state)
    if box is None:
        return _update_normal(state, candidates, fitness)
    # The search runs in an unbounded space, from which a smooth map leads into the box. The
    # inverse map returns the points of the candidates.
    low, high = box
    points = out_of_box(candidates, low.unsqueeze(-2), high.unsqueeze(-2))
    # The results of both maps are rounded. Nevertheless a coordinate that equals the mean's in
    # the box must equal the mean's in the unbounded space.
    is_mean = candidates == state.mean.unsqueeze(-2)
    unbounded_mean = state.distribution[..., MEAN, :].unsqueeze(-2)
    points = torch.where(is_mean, unbounded_mean, points)
    new = _update_normal(state, points, fitness)
    return _restore_best(state, new, candidates, points, fitness)


def _update_normal(state: State, candidates: Tensor, fitness: Tensor) -> State:
    """Return the next state of a search over real parameters.

    A search with a full covariance and evolution paths is CMA-ES. All other searches are
    updated by ``_update_by_cem``.

    Args:
        state: The state before this generation.
        candidates: Shape (..., N, d). If a transform maps the candidates into the box, these
            are the points before the transform.
        fitness: Shape (..., N).
    """
    if state.factor is None or state.paths is None:
        return _update_by_cem(state, candidates, fitness)
    # The compiled operator supports small searches only. The reference does the same in plain
    # PyTorch.
    update: Any = cma_update if is_fused(state) else cma_update_reference
    distribution, record, generation, factor, paths, _elites = update(
        fitness,
        candidates,
        state.distribution,
        state.record,
        state.generation,
        state.factor,
        state.paths,
        state.settings.num_elites,
        maximize=state.settings.maximize,
        rates=state.settings.rates,
        weights=state.weights,
        extra_variance=state.variance_schedule,
        std_floor=state.std_floor,
        smoothing=state.settings.config.smoothing,
        mean_averaging=state.settings.config.mean_averaging,
    )

    # These are the first five fields of a state. The others do not change. A slice is faster
    # than `state._replace`.
    other_fields = state[5:]
    return State(distribution, record, generation, factor, paths, *other_fields)


def _update_by_cem(state: State, candidates: Tensor, fitness: Tensor) -> State:
    """Return the next state of a search that is not CMA-ES with a full covariance.

    ``cem_update`` moves the mean and the standard deviations towards those of the elites. If
    the search has a full covariance or evolution paths, ``_adapt_std`` then computes other
    standard deviations. Candidates have shape (..., N, d), and the fitness has shape (..., N).
    """
    config = state.settings.config
    num_elites = state.settings.num_elites
    update: Any = cem_update
    if state.settings.backend == "torch":
        update = partial(cem_update_reference, fixed_order=False)
    weights = state.weights
    if weights is not None and state.paths is not None:
        # With paths all candidates have weights, but only the elites' weights move the mean.
        weights = weights[:num_elites]

    distribution, record, generation, _elites = update(
        fitness,
        candidates,
        state.distribution,
        state.record,
        state.generation,
        num_elites,
        maximize=state.settings.maximize,
        extra_variance=state.variance_schedule,
        weights=weights,
        std_floor=state.std_floor,
        variance_about=config.variance_about,
        smoothing=config.smoothing,
        std_smoothing=config.std_smoothing,
        mean_averaging=config.mean_averaging,
        ranked=False,
    )

    # These are the first three fields of a state. The others do not change. A slice is faster
    # than `state._replace`.
    other_fields = state[3:]
    new = State(distribution, record, generation, *other_fields)
    if state.factor is None and state.paths is None:
        return new
    return _adapt_std(state, new, candidates, fitness)


def _adapt_std(old: State, new: State, candidates: Tensor, fitness: Tensor) -> State:
    """Return ``new`` with the standard deviations, factor and paths of this generation.

    The search has either a full covariance, whose Cholesky factor is ``factor``, or the
    evolution paths of CMA-ES with a diagonal covariance.

    Args:
        old: The state before this generation.
        new: The state after it, with the new mean. Its standard deviations are not used.
        candidates: The population, shape (..., N, d).
        fitness: Its fitness, shape (..., N).
    """
    # ``ranked`` has one of the best candidates for each weight, the best first. ``failed`` says
    # which of them have no usable fitness.
    rank_weights = _rank_weights(old)
    ranked, weights, failed = rank_rows(
        fitness, candidates, rank_weights, old.settings.maximize
    )
    all_failed = failed.all(-1, keepdim=True)
    factor = None
    paths = None
    if old.paths is None:
        std, factor = _adapt_factor(old, ranked, weights, all_failed)
    else:
        std, paths = _adapt_by_paths(old, new, ranked, weights, all_failed)
    distribution = _replace_std(new.distribution, std)
    # These are the first five fields of a state. The others do not change.
    other_fields = new[5:]
    return State(distribution, new.record, new.generation, factor, paths, *other_fields)


def _rank_weights(state: State) -> Tensor:
    """Return the weights by rank, float64; a state without weights has equal ones."""
    if state.weights is not None:
        return state.weights
    # The record is float64, so this is, too.
    return state.record.new_ones(state.settings.num_elites)


def _replace_std(distribution: Tensor, std: Tensor) -> Tensor:
    """Return the rows of a distribution with other standard deviations, in their dtype."""
    mean, old_std, averaged_mean, best = distribution.unbind(-2)
    std = round_to(std, old_std.dtype)
    return torch.stack([mean, std, averaged_mean, best], dim=-2)


def _adapt_by_paths(
    old: State,
    new: State,
    ranked: Tensor,
    weights: Tensor,
    all_failed: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the next standard deviations and evolution paths of a diagonal search.

    If all candidates failed, or a result is not finite, the old value is returned.

    Args:
        old: The state before this generation.
        new: The state after it, with the new mean.
        ranked: The candidates from the best to the worst, shape (..., N, d), float64.
        weights: Their weights, shape (..., N); 0 for candidates that failed.
        all_failed: Whether every candidate failed, shape (..., 1).

    Returns:
        The standard deviations, shape (..., d), float64, and the paths, shape (..., 2, d).
    """
    assert old.paths is not None
    assert old.settings.rates is not None
    mean = old.distribution[..., MEAN, :].double()
    new_mean = new.distribution[..., MEAN, :].double()
    std = old.distribution[..., STD, :].double()
    paths = old.paths.double()
    variances, new_paths = adapt_covariance(
        std, ranked, weights, mean, new_mean, paths, old.generation, old.settings.rates
    )
    # Add the variance of the schedule, and what the lower limit of std requires.
    extra = extra_variances(variances, old.generation, old.variance_schedule, old.std_floor)
    new_std = (variances + extra).sqrt()
    new_std = torch.where(all_failed | ~new_std.isfinite(), std, new_std)
    is_unusable = all_failed.unsqueeze(-1) | ~new_paths.isfinite()
    new_paths = torch.where(is_unusable, paths, new_paths)
    return new_std, round_to(new_paths, old.paths.dtype)


def _adapt_factor(
    old: State,
    elites: Tensor,
    weights: Tensor,
    all_failed: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the next standard deviations and Cholesky factor of a search without paths.

    The covariance moves towards that of the elites. If all candidates failed, or the covariance
    has no Cholesky factor, the old factor and its standard deviations are returned.

    Args:
        old: The state before this generation.
        elites: The elites from the best to the worst, shape (..., K, d), float64.
        weights: Their weights, shape (..., K); 0 for candidates that failed.
        all_failed: Whether every candidate failed, shape (..., 1).

    Returns:
        The standard deviations, shape (..., d), float64, and the factor, shape (..., d, d).
    """
    assert old.factor is not None
    config = old.settings.config
    mean = old.distribution[..., MEAN, :].double()
    factor = old.factor.double()
    # If all candidates failed, this is 0 / 0 = NaN, and the old factor is returned below.
    weights = weights / weights.sum(-1, keepdim=True)
    target = elite_covariance(elites, weights, mean, config.variance_about)
    old_covariance = factor @ factor.mT
    covariance = old_covariance + config.std_smoothing * (target - old_covariance)
    variances = covariance.diagonal(dim1=-2, dim2=-1)
    # Add the variance of the schedule, and what the lower limit of std requires.
    extra = extra_variances(variances, old.generation, old.variance_schedule, old.std_floor)
    new_factor, is_usable = factorise(covariance + torch.diag_embed(extra))
    is_unusable = all_failed | ~is_usable.unsqueeze(-1)
    new_factor = torch.where(is_unusable.unsqueeze(-1), factor, new_factor)
    # The variances are the diagonal of L L^T.
    std = new_factor.square().sum(-1).sqrt()
    return std, round_to(new_factor, old.factor.dtype)


def _restore_best(
    old: State,
    new: State,
    candidates: Tensor,
    points: Tensor,
    fitness: Tensor,
) -> State:
    """Return ``new`` with the best candidate as it was evaluated, inside the bounds.

    The search runs in an unbounded space, and a smooth map leads from its points into the box
    of the bounds. ``new`` was computed from the points of this generation. If one of them is
    the best so far, ``new`` contains this point as its best candidate. This function replaces
    the point by its candidate in the box.

    Args:
        old: The state before this generation.
        new: The state after it.
        candidates: The population in the box, shape (..., N, d).
        points: The population in the unbounded space, shape (..., N, d).
        fitness: The fitness of the population, shape (..., N).
    """
    # Near a face of the box several candidates may have the same point, because of rounding.
    # So the fitness is compared, too. All masks of candidates have shape (..., N).
    best = new.best
    best_fitness = new.best_fitness
    is_best_point = (points == best.unsqueeze(-2)).all(-1)
    has_best_fitness = fitness.double() == best_fitness.unsqueeze(-1)
    is_best = is_best_point & has_best_fitness
    # As long as every candidate fails, the best fitness is NaN, which differs from itself.
    has_improved = (best_fitness != old.best_fitness) & is_best.any(-1)
    # argmax returns the first index at which the mask is True.
    index = is_best.int().argmax(-1)
    best_candidate = candidates.take_along_dim(index[..., None, None], dim=-2).squeeze(-2)
    best = torch.where(has_improved.unsqueeze(-1), best_candidate, best)
    # The distribution is the first field of a state. Its last row, BEST, is the best candidate.
    other_rows = new.distribution[..., :BEST, :]
    distribution = torch.cat([other_rows, best.unsqueeze(-2)], dim=-2)
    return State(distribution, *new[1:])


def _update_families(state: State, candidates: Tensor, fitness: Tensor) -> State:
    """Return the next state of a search with families of discrete parameters.

    The first ``settings.normal`` columns of the candidates are real parameters. They update the
    normal distribution. The other columns update the tables of probabilities of the families,
    which are stored in one tensor, ``state.discrete``.

    Args:
        state: The state before this generation.
        candidates: Shape (..., N, dim).
        fitness: Shape (..., N).
    """
    num_real = state.settings.normal
    real, discrete = candidates.tensor_split([num_real], dim=-1)
    tables, record, generation = _update_tables(state, discrete, fitness)
    if num_real:
        # This computes the same record and generation, because it ranks the same fitness.
        new = tell(state._replace(discrete=None), real.contiguous(), fitness)
    else:
        new = state._replace(record=record, generation=generation)
    return new._replace(discrete=tables)


def _update_tables(state: State, candidates: Tensor, fitness: Tensor) -> Any:
    """Return the next tables of all families, the record and the generation.

    If the operator supports every family, it updates all tables in one call. It gets the sizes
    and the learning rate of each family. Otherwise each family updates its own table.

    Args:
        state: The state before this generation.
        candidates: The discrete columns of the population, shape (..., N, C).
        fitness: The fitness of the population, shape (..., N).
    """
    settings = state.settings
    families: Any = settings.families
    update: Any = update_tables
    rules: list[Any] = []
    if all(map(_has_operator, families)):
        if settings.backend == "torch":
            # Torch is faster if it may add in any order. Only the compiled operators must
            # return the same bits on every machine.
            update = partial(update_tables_reference, fixed_order=False)
        # The rule of a family consists of its sizes and its learning rate.
        for family in families:
            num_rows, num_values = family.rows
            rules.append((family.columns, num_rows, num_values, family.smoothing))
    else:
        update = update_tables_by
        rules = [_make_move(family) for family in families]
    old = (state.discrete, state.record, state.generation)
    return update(
        fitness, candidates, old, settings.num_elites, rules, maximize=settings.maximize
    )


def _has_operator(family: Family) -> bool:
    """Return whether ``update_tables``, which only has the family's sizes, can update it."""
    return (
        isinstance(family, OperatorFamily)
        and type(family).update is OperatorFamily.update
        and family.rows[0] == family.columns + family.more_rows
    )


def _make_move(family: Family) -> Move:
    """Return the sizes of a family, and a function that updates its table."""

    def update(table: Tensor, candidates: Tensor, weights: Tensor) -> Tensor:
        new = family.update(table, candidates.long(), weights)
        _check_shape(family, "update", new, table.shape)
        has_success = (weights != 0).any(-1, keepdim=True)
        return torch.where(has_success, new.to(table), table)

    rows, values = family.rows
    return Move(family.columns, cells=rows * values, update=update)


def _check_shape(family: Family, method: str, tensor: Tensor, shape: Sequence[int]) -> None:
    if tensor.shape != tuple(shape):
        raise ValueError(
            f"expected {method} of {family} to return the shape {tuple(shape)}, "
            f"got {tuple(tensor.shape)}"
        )
