"""The update of the cross-entropy method: elites and the next distribution in one call.

In generation t, with weights w_k over the elites in rank order, W their sum, and Z_t the extra
variance:

    m = sum w_k x_k / W                                                 mean of the elites
    s = sum w_k (x_k - m)^2 / W                                         variance about it
    v = s | s / (1 - sum (w_k / W)^2) | s + (m - mean)^2, and + Z_t     see ``variance_about``
    mean'     = mean + smoothing (m - mean)
    std'      = max(std + std_smoothing (sqrt(v) - std), std_floor)
    averaged' = averaged + (mean' - averaged) / (1 + mean_averaging t)

P.-T. de Boer, D. Kroese, S. Mannor and R. Rubinstein, A Tutorial on the Cross-Entropy Method,
Annals of Operations Research 134, 2005; the extra variance: I. Szita and A. Lorincz, Learning
Tetris Using the Noisy Cross-Entropy Method, Neural Computation 18(12), 2006; the variance about
the old mean: N. Hansen, The CMA Evolution Strategy: A Tutorial, arXiv:1604.00772, section 3.1.

Sums are float64 and added in the order of update.h: CPU and CUDA give the same bits.
"""

from functools import partial
from typing import Any

from torch import Tensor

from kernels.ops.cem_update.reference import VARIANCES
from kernels.ops.library import Library

Updated = tuple[Tensor, Tensor, Tensor, Tensor]


def cem_update(  # noqa: PLR0913 - the state and the settings of an update
    fitness: Tensor,
    candidates: Tensor,
    distribution: Tensor,
    record: Tensor,
    generation: Tensor,
    num_elites: int,
    *,
    maximize: bool,
    extra_variance: Tensor | None = None,
    weights: Tensor | None = None,
    std_floor: Tensor | None = None,
    variance_about: str = "new_mean",
    smoothing: float = 1.0,
    std_smoothing: float = 1.0,
    mean_averaging: float = 0.0,
    ranked: bool = True,
) -> Updated:
    """Return the next state of a cross-entropy search: its distribution moves to the elites.

    In the shapes below, leading dimensions ``...`` are independent problems, N is the
    population size, d the number of dimensions, and K the number of elites. All tensors are on
    one device, CPU or CUDA. The CPU never waits for the device. The results have no gradients.

    Candidates are ranked by a stable sort: of equal values (-0 equals 0) the one with the lower
    index ranks first. A candidate fails if its fitness is NaN or infinitely bad. It then ranks
    last and is never an elite. If fewer than K candidates are usable, only these are elites,
    and they get the first weights. If none is usable, the distribution and the best fitness are
    left unchanged, and the record says that the generation failed.

    In a dimension where the mean or the variance of the elites is not finite, the old mean and
    std are left unchanged. A result that is too large for the dtype becomes its largest number.
    The unbiased variance divides by ``1 - sum (w_k / W)^2``; if that is 0, as it is for a
    single elite, the old variance is used.

    Examples:
        >>> candidates = torch.tensor([[0.0], [1.0], [2.0], [5.0]])
        >>> distribution = torch.tensor([[1.0], [2.0], [1.0], [float("nan")]])
        >>> record = torch.tensor([float("nan")] * 4 + [0.0], dtype=torch.float64)
        >>> generation = torch.tensor(0)
        >>> fitness = candidates[:, 0]
        >>> state = distribution, record, generation
        >>> cem_update(fitness, candidates, *state, 2, maximize=False)[0]
        tensor([[0.5000],
                [0.5000],
                [0.5000],
                [0.0000]])

    Args:
        fitness: shape (..., N), 1 <= N < 2**31; float64, float32, float16, bfloat16, bool or an
            integer type up to int64.
        candidates: shape (..., N, d), float32 or float64.
        distribution: shape (..., 4, d), dtype of the candidates. Rows: mean, std, averaged
            mean, best candidate so far.
        record: shape (..., 5), float64. Its numbers are the best fitness so far (NaN if there
            is none yet); the best, mean and worst fitness of the last generation's elites; the
            last generation that failed, counted from 1, or 0 if none did.
        generation: shape (), int64: t, the number of generations before this one.
        num_elites: K, from 1 to N.
        maximize: True if a greater fitness is better.
        extra_variance: shape (T,), float64, T >= 1: the variance that is added in generation t.
            From t = T - 1 on, the last number is added. None adds no variance.
        weights: shape (K,), float64, from the best elite to the worst. None: equal weights, for
            which the elites need not be sorted.
        std_floor: the lowest std, shape (..., d) or (d,), dtype of the candidates. None: 0.
        variance_about: the point about which the variance of the elites is computed:
            ``"new_mean"``, ``"new_mean_unbiased"`` or ``"old_mean"``.
        smoothing: how far the mean moves, as a fraction of the way from the old mean to the
            mean of the elites, in (0, 1].
        std_smoothing: the same for std.
        mean_averaging: a, at least 0: the averaged mean takes the fraction 1 / (1 + a t) of the
            step to the new mean. For a = 0 it is the new mean, for a = 1 the mean of all means.
        ranked: True if ``elites`` must be in rank order. Index order takes no extra time.

    Returns:
        Four new tensors.

        - distribution after this generation
        - record after this generation
        - generation, t + 1
        - elites, shape (..., K), int64: the indices of the K best candidates, in rank order or
            in index order. If fewer are usable, the indices of failed ones come last.

    Raises:
        TypeError: a tensor has the wrong type.
        ValueError: a tensor has a wrong shape or device, or a number is out of range.
        kernels.BuildError: the operator is not built yet, and cannot be built.
    """
    if variance_about not in VARIANCES:
        raise ValueError(
            f"expected variance_about of {', '.join(VARIANCES)}, got {variance_about!r}"
        )
    # The arguments are in the order of the operator's schema.
    result: Updated = _LIBRARY.call(
        "cem_update",
        fitness,
        candidates,
        distribution,
        record,
        generation,
        extra_variance,
        weights,
        std_floor,
        num_elites,
        maximize,
        VARIANCES[variance_about],
        smoothing,
        std_smoothing,
        mean_averaging,
        ranked,
    )
    return result


def fake(parts: int, fitness: Tensor, _: Tensor, *arguments: Any) -> Any:
    """Return uninitialised results of an update: the new state, and the indices of the elites.

    ``arguments`` are those of the operator after fitness and candidates. They begin with the
    ``parts`` tensors of the state, the third of which is the generation.
    """
    # Three optional tensors lie between the state and the number of elites.
    num_elites = arguments[parts + 3]
    state = [part.new_empty(part.shape) for part in arguments[:parts]]
    generation = arguments[2]
    return (*state, generation.new_empty((*fitness.shape[:-1], num_elites)))


_LIBRARY = Library("cem_update", {"cem_update": partial(fake, 3)})
