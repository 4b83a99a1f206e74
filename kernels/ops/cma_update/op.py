"""A generation of CMA-ES with a full covariance: its candidates, and its update, in one call each.

With y_k = x_k - mean, w_k the weights by rank, negative for the worse ones, and L the Cholesky factor:

    x_i    = mean + L z_i                                                       the candidates
    mean'  = mean + smoothing (m - mean), m = sum w_k x_k / sum w_k             over the elites: cem_update
    p'     = (1 - c_s) p + sqrt(c_s (2 - c_s) mu_eff) L^-1 (mean' - mean)
    h      = |p'|^2 / (1 - (1 - c_s)^(2 (t + 1))) < (2 + 4 / (d + 1)) d
    q'     = r ((1 - c_c) q + h sqrt(c_c (2 - c_c) mu_eff) (mean' - mean))
    r      = exp(min(1, (c_s / d_s) (|p'| / chi - 1)))
    v_k    = w_k, or w_k d / |L^-1 y_k|^2 where w_k < 0
    C'     = r^2 (a L L^T + c_mu sum v_k y_k y_k^T) + c_1 q' q'^T
    a      = 1 - c_1 - c_mu sum w + (1 - h) c_1 c_c (2 - c_c)
    L' L'^T = C' + max(Z_t, std_floor^2 - C'_ii), and 1e-12 of the result, on the diagonal

N. Hansen, The CMA Evolution Strategy: A Tutorial, arXiv:1604.00772, 2023; L in place of the symmetric root:
O. Krause, D. Arbonès and C. Igel, CMA-ES with Optimal Covariance Update and Storage Complexity, NeurIPS 2016.

Everything is computed in float64, in the order of adapt.h: CPU and CUDA give the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from kernels.ops.cem_update.op import _check as check_update
from kernels.ops.cma_update.reference import Rates, cma_update_reference, draw_correlated_reference
from kernels.ops.library import Library, check_tensor, is_transformed

Updated = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]

MAX_DIMENSIONS, MAX_POPULATION = 64, 2048
"""The largest problem of ``cma_update``: its covariance lies in a block's shared memory."""
_RATES = ("mu_eff", "c_s", "d_s", "c_c", "c_1", "c_mu", "chi")


def draw_correlated(
    distribution: Tensor,
    factor: Tensor,
    population_size: int,
    *,
    seed: Tensor,
    generation: Tensor,
    bounds: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Draw from N(mean, L L^T); the result has no gradients.

    The noise is that of ``sample_normal_rows`` for mean 0 and std 1: a candidate does not depend on how many
    there are. Sums are float64, rounded once: in float64, CPU and CUDA give the same bits.

    Args:
        distribution: shape (..., 4, d), float32 or float64, 1 <= d <= 64. Row 0 is the mean.
        factor: shape (..., d, d), like ``distribution``: L, of which the lower triangle is read.
        population_size: N, 0 or more.
        seed: shape (...), int64.
        generation: shape (), int64, taken modulo 2**38.
        bounds: (low, high), like ``distribution``, shape (d,) or (..., d): each candidate is clamped to them.

    Returns:
        A new tensor, shape (..., N, d).

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong shape, device or value.
        kernels.BuildError: the operator has to be built, and cannot be.
    """
    tensors: Any = (distribution, factor, seed, generation, *(bounds or (None, None)))
    if is_transformed():
        _check_draw(tensors, population_size)
        with forward_ad._set_fwd_grad_enabled(False), torch.no_grad():
            return draw_correlated_reference(
                *(distribution, factor, population_size), seed=seed, generation=generation, bounds=bounds
            )
    try:
        draw = _draw
        if _is_traced() or distribution.is_cuda not in _ready:
            _LIBRARY.ensure(distribution)
            draw = torch.ops.cem_tetris.draw_correlated.default
        if distribution.requires_grad or factor.requires_grad:
            distribution, factor = distribution.detach(), factor.detach()
        result: Tensor = draw(distribution, factor, population_size, *tensors[2:])
        return result
    except (RuntimeError, TypeError, AttributeError):
        _check_draw(tensors, population_size)
        raise


def cma_update(
    fitness: Tensor,
    candidates: Tensor,
    distribution: Tensor,
    record: Tensor,
    generation: Tensor,
    factor: Tensor,
    paths: Tensor,
    num_elites: int,
    *,
    maximize: bool,
    rates: Rates,
    weights: Tensor,
    extra_variance: Tensor | None = None,
    std_floor: Tensor | None = None,
    smoothing: float = 1.0,
    mean_averaging: float = 0.0,
) -> Updated:
    """Move mean, covariance, step size and evolution paths; the results have no gradients.

    Mean, averaged mean, best candidate and record are those of ``cem_update``, which says more of the
    arguments that both have, of the ranking, and of candidates that failed: here they have weight 0. A
    generation without a usable candidate keeps everything, and counts. Where the new covariance is not
    finite or not positive definite, the factor stays; a path stays where it is not finite.

    Args:
        fitness: shape (..., N), 1 <= N <= 2048.
        candidates: shape (..., N, d), float32 or float64, 1 <= d <= 64.
        distribution: shape (..., 4, d): mean, std, averaged mean, best candidate so far.
        record: shape (..., 5), float64.
        generation: shape (), int64: t.
        factor: shape (..., d, d), dtype of the candidates: the lower triangular L, zeros above.
        paths: shape (..., 2, d), dtype of the candidates: p and q.
        num_elites: K, from 1 to N.
        maximize: True if a greater fitness is better.
        rates: mu_eff, c_s, d_s, c_c, c_1, c_mu and chi.
        weights: shape (N,), float64, by rank: the first K positive, the elites'; the others 0 or negative.
        extra_variance: shape (T,), float64, T >= 1: Z_t. None: 0.
        std_floor: shape (..., d) or (d,), dtype of the candidates. None: no floor.
        smoothing: in (0, 1].
        mean_averaging: at least 0.

    Returns:
        Six new tensors: distribution, whose std are the lengths of the factor's rows, record, generation,
        factor, paths, and the indices of the elites in rank order, shape (..., K), int64.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong shape, device or value.
        kernels.BuildError: the operator has to be built, and cannot be.
    """
    # fmt: off
    tensors: Any = (
        fitness, candidates, distribution, record, generation, factor, paths,
        weights, extra_variance, std_floor,
    )
    # fmt: on
    numbers: Any = (num_elites, maximize, smoothing, mean_averaging, *rates)
    if is_transformed():
        _check(tensors, numbers)
        with forward_ad._set_fwd_grad_enabled(False):
            return cma_update_reference(
                *(fitness, candidates, distribution, record, generation, factor, paths, num_elites),
                maximize=maximize,
                rates=rates,
                weights=weights,
                extra_variance=extra_variance,
                std_floor=std_floor,
                smoothing=smoothing,
                mean_averaging=mean_averaging,
            )
    try:
        update = _update
        if _is_traced() or fitness.is_cuda not in _ready:
            _LIBRARY.ensure(fitness)
            update = torch.ops.cem_tetris.cma_update.default
        if any(each is not None and each.requires_grad for each in tensors):
            tensors = tuple(None if each is None else each.detach() for each in tensors)
        result: Updated = update(*tensors, *numbers)
        return result
    except (RuntimeError, TypeError, AttributeError):
        # The operator checks too: only a call that it refuses pays for this.
        _check(tensors, numbers)
        raise


def _check(tensors: Any, numbers: Any) -> None:
    """Raise what ``cma_update`` says it raises."""
    *moved, factor, paths, weights, extra_variance, std_floor = tensors
    num_elites, maximize, smoothing, mean_averaging, *rates = numbers
    options = (smoothing, 1.0, mean_averaging, True)
    check_update((*moved, extra_variance, None, std_floor), num_elites, maximize, "old_mean", options)
    (*batch, population, width), device = moved[1].shape, moved[1].device
    if not (1 <= width <= MAX_DIMENSIONS and population <= MAX_POPULATION):
        wanted = f"1 to {MAX_DIMENSIONS} dimensions and at most {MAX_POPULATION} candidates"
        raise ValueError(f"expected {wanted}, got {width} and {population}")
    check_tensor("factor", factor, (moved[1].dtype,), device, [(*batch, width, width)])
    check_tensor("paths", paths, (moved[1].dtype,), device, [(*batch, 2, width)])
    check_tensor("weights", weights, (torch.float64,), device, [(population,)])
    if len(rates) != len(_RATES) or not all(isinstance(rate, (int, float)) for rate in rates):
        raise TypeError(f"expected the numbers {', '.join(_RATES)} for rates, got {tuple(rates)}")


def _check_draw(tensors: Any, population_size: int) -> None:
    distribution, factor, seed, generation, low, high = tensors
    check_tensor("distribution", distribution, (torch.float32, torch.float64))
    if distribution.dim() < 2 or not 1 <= distribution.shape[-1] <= MAX_DIMENSIONS:
        got = tuple(distribution.shape)
        raise ValueError(f"expected distribution of shape (..., 4, d), 1 <= d <= {MAX_DIMENSIONS}, got {got}")
    (*batch, _, width), dtype, device = distribution.shape, (distribution.dtype,), distribution.device
    check_tensor("distribution", distribution, dtype, device, [(*batch, 4, width)])
    check_tensor("factor", factor, dtype, device, [(*batch, width, width)])
    check_tensor("seed", seed, (torch.int64,), device, [tuple(batch)])
    check_tensor("generation", generation, (torch.int64,), device, [()])
    for name, bound in (("low", low), ("high", high)):
        if bound is not None:
            check_tensor(name, bound, dtype, device, [(width,), (*batch, width)])
    if not isinstance(population_size, (int, torch.SymInt)) or isinstance(population_size, bool):
        raise TypeError(f"expected population_size to be an int, got {type(population_size).__name__}")
    if not 0 <= population_size < 2**31:
        raise ValueError(f"expected 0 <= population_size < 2**31, got {population_size}")


def _fake(*arguments: Any) -> Updated:
    _check(arguments[:10], arguments[10:])
    fitness, candidates, distribution, record, generation, factor, paths, *_ = arguments
    return (
        *(candidates.new_empty(distribution.shape), record.new_empty(record.shape)),
        *(generation.new_empty(()), factor.new_empty(factor.shape), paths.new_empty(paths.shape)),
        generation.new_empty((*fitness.shape[:-1], arguments[10])),
    )


def _fake_draw(
    distribution: Tensor, factor: Tensor, population_size: int, seed: Tensor, generation: Tensor, *bounds: Any
) -> Tensor:
    _check_draw((distribution, factor, seed, generation, *(*bounds, None, None)[:2]), population_size)
    *batch, _, width = distribution.shape
    return distribution.new_empty((*batch, population_size, width))


def _register() -> None:
    global _draw, _update
    torch.library.register_fake("cem_tetris::cma_update", _fake)
    torch.library.register_fake("cem_tetris::draw_correlated", _fake_draw)
    _update = torch.ops.cem_tetris.cma_update.default._op
    _draw = torch.ops.cem_tetris.draw_correlated.default._op


_LIBRARY = Library("cma_update", _register)
_ready = _LIBRARY.ready
_update: Any = None  # the operators, once they are loaded
_draw: Any = None
_is_traced = torch.compiler.is_dynamo_compiling
