"""CMA-ES with a full covariance: one operator draws candidates, another one updates the state.

With y_k = x_k - mean, w_k the weights by rank, negative for the worse ones, and L the Cholesky
factor:

    x_i    = mean + L z_i                                                       the candidates
    mean'  = mean + smoothing (m - mean), m = sum w_k x_k / sum w_k             over the elites
    p'     = (1 - c_s) p + sqrt(c_s (2 - c_s) mu_eff) L^-1 (mean' - mean)
    h      = |p'|^2 / (1 - (1 - c_s)^(2 (t + 1))) < (2 + 4 / (d + 1)) d
    q'     = r ((1 - c_c) q + h sqrt(c_c (2 - c_c) mu_eff) (mean' - mean))
    r      = exp(min(1, (c_s / d_s) (|p'| / chi - 1)))
    v_k    = w_k, or w_k d / |L^-1 y_k|^2 where w_k < 0
    C'     = r^2 (a L L^T + c_mu sum v_k y_k y_k^T) + c_1 q' q'^T
    a      = 1 - c_1 - c_mu sum w + (1 - h) c_1 c_c (2 - c_c)
    L' L'^T = C' + max(Z_t, std_floor^2 - C'_ii), and 1e-12 of the result, on the diagonal

N. Hansen, The CMA Evolution Strategy: A Tutorial, arXiv:1604.00772, 2023; L in place of the
symmetric root: O. Krause, D. Arbonès and C. Igel, CMA-ES with Optimal Covariance Update and
Storage Complexity, NeurIPS 2016.

Everything is computed in float64, in the order of adapt.h: CPU and CUDA give the same bits.
"""

from functools import partial

from torch import Tensor

from kernels.ops.cem_update.op import fake
from kernels.ops.cma_update.reference import Rates
from kernels.ops.library import Library

Updated = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]

MAX_DIMENSIONS = 64
MAX_POPULATION = 2048
"""The largest problem of ``cma_update``: its covariance lies in a block's shared memory."""


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

    The noise is that of ``sample_normal_rows`` for mean 0 and std 1, so a candidate does not
    depend on the number of candidates. Sums are computed in float64 and rounded once, so in
    float64 the CPU and CUDA give the same bits. Errors are those of ``cem_update``.

    Args:
        distribution: shape (..., 4, d), float32 or float64, 1 <= d <= 64. Row 0 is the mean.
        factor: L, shape (..., d, d), dtype and device of ``distribution``. Only its lower
            triangle is read.
        population_size: N, 0 or more.
        seed: shape (...), int64.
        generation: shape (), int64, taken modulo 2**38.
        bounds: (low, high), like ``distribution``, shape (d,) or (..., d): each candidate is
            clamped to them.

    Returns:
        A new tensor, shape (..., N, d).
    """
    limits = bounds or ()
    result: Tensor = _LIBRARY.call(
        "draw_correlated", distribution, factor, population_size, seed, generation, *limits
    )
    return result


def cma_update(  # noqa: PLR0913 - the state and the settings of an update
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
    """Return the next state of CMA-ES: mean, covariance, step size and evolution paths.

    The covariance L L^T, where L is ``factor``, includes the step size. Candidates are ranked
    as ``cem_update`` ranks them. A candidate that failed has weight 0. The results have no
    gradients.

    Where a new value cannot be computed, the result contains the old value:

    - If no candidate is usable, only record and generation get new values.
    - If the new covariance is not finite or not positive definite, factor and std keep theirs.
    - If a new element of mean or paths is not finite, this element keeps its old value.

    Args:
        fitness: shape (..., N), 1 <= N <= 2048.
        candidates: shape (..., N, d), float32 or float64, 1 <= d <= 64.
        distribution: shape (..., 4, d). Rows: mean, std, averaged mean, best candidate so far.
        record: shape (..., 5), float64. It contains five numbers: the best fitness so far; the
            best, the mean and the worst fitness of the last generation's elites; and the last
            generation in which all candidates failed, counted from 1, or 0 if there is none.
        generation: shape (), int64: t, the number of generations before this one.
        factor: shape (..., d, d), dtype of the candidates: the lower triangular L, zeros above.
        paths: shape (..., 2, d), dtype of the candidates. Row 0 is the evolution path of the
            step size, row 1 that of the covariance.
        num_elites: K, from 1 to N.
        maximize: True if a greater fitness is better.
        rates: (mu_eff, c_s, d_s, c_c, c_1, c_mu, chi), as in Hansen's tutorial,
            arXiv:1604.00772, but mu_eff divided by the square of ``smoothing``; chi is the
            expected length of a standard normal vector.
        weights: shape (N,), float64, by rank: positive for the K elites, 0 or negative for the
            others.
        extra_variance: shape (T,), float64, T >= 1. Generation t adds ``extra_variance[t]`` to
            every variance. From t = T - 1 on, the last number is added. None adds no variance.
        std_floor: the lowest std, shape (..., d) or (d,), dtype of the candidates. None: 0.
        smoothing: how far the mean moves, as a fraction of the way from the old mean to the
            mean of the elites, in (0, 1].
        mean_averaging: a, at least 0: the averaged mean takes the fraction 1 / (1 + a t) of the
            step to the new mean.

    Returns:
        Six new tensors. The first five have the shapes of the arguments.

        - distribution. Its row std contains the square roots of the diagonal of L L^T.
        - record
        - generation, t + 1
        - factor
        - paths
        - elites, shape (..., K), int64: the indices of the elites in rank order

    Raises:
        TypeError: a tensor has the wrong type.
        ValueError: a tensor has a wrong shape or device, or a number is out of range.
        kernels.BuildError: the operator is not built yet, and cannot be built.
    """
    # The arguments are in the order of the operator's schema, which ends with the seven rates.
    result: Updated = _LIBRARY.call(
        "cma_update",
        fitness,
        candidates,
        distribution,
        record,
        generation,
        factor,
        paths,
        weights,
        extra_variance,
        std_floor,
        num_elites,
        maximize,
        smoothing,
        mean_averaging,
        *rates,
    )
    return result


def _fake_draw(mean: Tensor, _: Tensor, size: int, *__: object) -> Tensor:
    return mean.new_empty((*mean.shape[:-2], size, mean.shape[-1]))


_LIBRARY = Library(
    "cma_update", {"cma_update": partial(fake, 5), "draw_correlated": _fake_draw}
)
