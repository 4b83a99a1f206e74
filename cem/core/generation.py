"""One generation: candidates are drawn from the state, and their fitness moves it.

``cem.functional`` exports both functions; the equations stand in ``cem.optimizer``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cem.core.adaptation import of_elites
from cem.core.backend import mix_seed
from cem.core.bounds import keep_inside, out_of_box
from cem.core.state import (
    AVERAGED_MEAN,
    BEST,
    MEAN,
    STD,
    State,
    bounds_of,
    is_fused,
    is_transformed,
    tables_of,
    with_integers,
)
from cem.families.family import Family, OperatorFamily
from kernels.ops.cem_update import cem_update, cem_update_reference
from kernels.ops.cem_update.reference import round_to
from kernels.ops.cma_update import cma_update, cma_update_reference, draw_correlated
from kernels.ops.cma_update.reference import adapt_covariance, extra_variances, factorise, rank_rows
from kernels.ops.discrete.tables import Move, update_tables, update_tables_by, update_tables_reference
from kernels.ops.normal import sample_normal_rows
from kernels.ops.philox import signed64

Sample = Callable[[State, Tensor, int], Tensor]
"""Maps (state, rows, N) to draws of N(rows[..., 0, :], rows[..., 1, :]^2), shape (..., N, d)."""


def operator_sample(
    state: State, rows: Tensor, size: int, bounds: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Draw by the operator ``sample_normal_rows``, which clamps to bounds; a ``Sample``."""
    return sample_normal_rows(rows, size, seed=state.seed, generation=state.generation, bounds=bounds)


def draw(state: State, sample: Sample, size: int | None = None) -> Tensor:
    """Return the first ``size`` candidates of a generation, shape (..., N, d); None: all."""
    size = state.settings.population_size if size is None else size
    parts = [with_integers(state, _normal(state, sample, size))] if state.settings.normal else []
    dtype, backend = state.distribution.dtype, state.settings.backend
    for number, (family, table) in enumerate(tables_of(state)):
        seed = state.seed ^ signed64(mix_seed(number, 0)) if number else state.seed
        options: Any = {"generation": state.generation, "dtype": dtype, "backend": backend}
        columns = family.sample(table, size, seed=seed, **options)
        _check_shape(family, "sample", columns, (*table.shape[:-1], size, family.columns))
        parts.append(columns.to(dtype))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def _normal(state: State, sample: Sample, size: int) -> Tensor:
    """Return the columns of the normal distribution, within the bounds."""
    handling, bounds, rows = state.settings.config.bound_handling, bounds_of(state), state.distribution
    if state.factor is None and sample is operator_sample and (bounds is None or handling == "clamp"):
        return operator_sample(state, rows, size, bounds)  # no view: it takes as long as a small kernel
    if state.factor is None:
        x = sample(state, rows, size)
    elif sample is operator_sample and is_fused(state):
        clamped = bounds if handling == "clamp" else None
        which = {"seed": state.seed, "generation": state.generation}
        x = draw_correlated(rows, state.factor, size, bounds=clamped, **which)
        bounds = bounds if clamped is None else None
    else:
        mean = rows[..., MEAN, :]
        standard = torch.stack([torch.zeros_like(mean), torch.ones_like(mean)], dim=-2)
        noise = sample(state, standard, size)
        with torch.autocast(mean.device.type, enabled=False):
            x = torch.add(noise @ state.factor.mT, mean.unsqueeze(-2))
    return x if bounds is None else keep_inside(x, rows[..., MEAN, :], rows[..., STD, :], *bounds, handling)


def tell(state: State, candidates: Tensor, fitness: Tensor) -> State:
    """Move the distribution towards the elites, and count the generation; return the next state.

    Candidates have shape (..., N, d), dtype and device of the state, fitness (..., N) any real dtype. NaN and
    the infinity on the bad side are failures, never elites; a problem without a single success keeps its
    distribution, and its number of the generation is in ``record``.
    """
    settings, config, bounds = state.settings, state.settings.config, bounds_of(state)
    if state.discrete is not None:
        return _with_families(state, candidates, fitness)
    in_box = candidates
    if bounds is not None and is_transformed(state):
        candidates = out_of_box(in_box, bounds[0].unsqueeze(-2), bounds[1].unsqueeze(-2))
        # Back from the box a coordinate differs by its rounding: one that is that of the mean stays there.
        still = in_box == state.mean.unsqueeze(-2)
        candidates = torch.where(still, state.distribution[..., MEAN, :].unsqueeze(-2), candidates)
    if state.factor is not None and state.paths is not None and state.weights is not None:
        cma: Any = cma_update if is_fused(state) else cma_update_reference
        distribution, record, generation, factor, paths, _ = cma(
            fitness,
            candidates,
            state.distribution,
            state.record,
            state.generation,
            state.factor,
            state.paths,
            settings.num_elites,
            maximize=settings.maximize,
            rates=settings.rates,
            weights=state.weights,
            extra_variance=state.variance_schedule,
            std_floor=state.std_floor,
            smoothing=config.smoothing,
            mean_averaging=config.mean_averaging,
        )
        new = State(distribution, record, generation, factor, paths, *state[5:])
    else:
        new = _moved(state, candidates, fitness)
    return new if candidates is in_box else _with_best_of(in_box, candidates, fitness, state, new)


def _with_families(state: State, candidates: Tensor, fitness: Tensor) -> State:
    """Move the tables of the families, the record, and the normal distribution."""
    settings = state.settings
    assert state.discrete is not None
    numbers, columns = candidates.tensor_split([settings.normal], dim=-1)
    families: Any = settings.families
    update: Any = update_tables
    if settings.backend == "torch":
        update = partial(update_tables_reference, fixed_order=False)
    if all(map(_has_operator, families)):
        rules = [(family.columns, *family.rows, family.smoothing) for family in families]
    else:
        update, rules = update_tables_by, [_move_of(family) for family in families]
    old = state.discrete, state.record, state.generation
    moved = update(fitness, columns, old, settings.num_elites, rules, maximize=settings.maximize)
    tables, record, generation = moved
    if settings.normal:
        new = tell(state._replace(discrete=None), numbers.contiguous(), fitness)
    else:
        new = state._replace(record=record, generation=generation)
    return new._replace(discrete=tables)


def _has_operator(family: Family) -> bool:
    """Return whether ``update_tables``, which knows a family by its numbers alone, moves its table."""
    if not isinstance(family, OperatorFamily) or type(family).update is not OperatorFamily.update:
        return False
    return family.rows[0] == family.columns + family.more_rows


def _move_of(family: Family) -> Move:
    """Return columns, cells, and the update of a family by its own PyTorch."""

    def move(table: Tensor, candidates: Tensor, weights: Tensor) -> Tensor:
        moved = family.update(table, candidates.long(), weights)
        _check_shape(family, "update", moved, table.shape)
        succeeded = (weights != 0).any(-1, keepdim=True)
        return torch.where(succeeded, moved.to(table), table)

    rows, values = family.rows
    return family.columns, rows * values, move


def _check_shape(family: Family, method: str, tensor: Tensor, shape: Sequence[int]) -> None:
    if tuple(tensor.shape) != tuple(shape):
        expected, got = tuple(shape), tuple(tensor.shape)
        raise ValueError(f"expected {method} of {family} to return the shape {expected}, got {got}")


def _moved(state: State, candidates: Tensor, fitness: Tensor) -> State:
    """Return the next state of all but a full covariance with paths."""
    settings, config, weights = state.settings, state.settings.config, state.weights
    update: Any = cem_update
    if settings.backend == "torch":
        update = partial(cem_update_reference, fixed_order=False)
    distribution, record, generation, _ = update(
        fitness,
        candidates,
        state.distribution,
        state.record,
        state.generation,
        settings.num_elites,
        maximize=settings.maximize,
        extra_variance=state.variance_schedule,
        weights=weights if weights is None or state.paths is None else weights[: settings.num_elites],
        std_floor=state.std_floor,
        variance_about=config.variance_about,
        smoothing=config.smoothing,
        std_smoothing=config.std_smoothing,
        mean_averaging=config.mean_averaging,
        ranked=state.factor is not None,
    )
    new = State(distribution, record, generation, *state[3:])  # faster than _replace
    if state.factor is None and state.paths is None:
        return new
    return _adapted(state, new, candidates, fitness)


def _with_best_of(in_box: Tensor, candidates: Tensor, fitness: Tensor, old: State, new: State) -> State:
    """Return a state whose new best candidate is the one in the box, as it was evaluated."""
    best, best_fitness = new.best, new.best_fitness
    # Of points too near to a face to be told apart some are not as fit.
    is_best = (candidates == best.unsqueeze(-2)).all(-1) & (fitness.double() == best_fitness.unsqueeze(-1))
    improved = (best_fitness != old.best_fitness) & is_best.any(-1)
    index = is_best.int().argmax(-1)[..., None, None].expand(*best.shape[:-1], 1, best.shape[-1])
    best = torch.where(improved.unsqueeze(-1), in_box.gather(-2, index).squeeze(-2), best)
    return State(torch.cat([new.distribution[..., :BEST, :], best.unsqueeze(-2)], dim=-2), *new[1:])


def _adapted(old: State, new: State, candidates: Tensor, fitness: Tensor) -> State:
    """Replace the standard deviations by what paths, or the covariance of the elites, make of them."""
    settings, config, rates = old.settings, old.settings.config, old.settings.rates
    mean, std = old.distribution[..., MEAN, :].double(), old.distribution[..., STD, :].double()
    factor, paths, weights = old.factor, old.paths, old.weights
    if weights is None:
        weights = torch.ones(settings.num_elites, dtype=torch.float64, device=mean.device)
    rows, weights, failed = rank_rows(fitness, candidates, weights, settings.maximize)
    all_failed = failed.all(-1, keepdim=True)
    if rates is not None and paths is not None:
        moved = new.distribution[..., MEAN, :].double()
        variances, found = adapt_covariance(
            std, rows, weights, mean, moved, paths.double(), old.generation, rates
        )
        more = extra_variances(variances, old.generation, old.variance_schedule, old.std_floor)
        next_std = (variances + more).sqrt()
        next_std = torch.where(all_failed | ~next_std.isfinite(), std, next_std)
        kept = all_failed.unsqueeze(-1) | ~found.isfinite()
        paths = round_to(torch.where(kept, paths.double(), found), paths.dtype)
    else:
        assert factor is not None
        lower = factor.double()
        weights = weights / weights.sum(-1, keepdim=True)
        covariance = of_elites(rows, weights, mean, config.variance_about)
        covariance = lower @ lower.mT + config.std_smoothing * (covariance - lower @ lower.mT)
        variances = covariance.diagonal(dim1=-2, dim2=-1)
        more = extra_variances(variances, old.generation, old.variance_schedule, old.std_floor)
        found, good = factorise(covariance + torch.diag_embed(more))
        found = torch.where((all_failed | ~good.unsqueeze(-1)).unsqueeze(-1), lower, found)
        next_std, factor = found.square().sum(-1).sqrt(), round_to(found, factor.dtype)
    rest = new.distribution.unbind(-2)
    next_std = round_to(next_std, rest[STD].dtype)
    distribution = torch.stack([rest[MEAN], next_std, *rest[AVERAGED_MEAN:]], dim=-2)
    return State(distribution, new.record, new.generation, factor, paths, *new[5:])
