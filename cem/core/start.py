"""The first state of a search, made from the arguments of ``CrossEntropyMethod``."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.adaptation import Rates, all_weights, rank_weights, rates
from cem.core.backend import CMA_OPERATORS, OPERATORS, choose_backend, mix_seed
from cem.core.bounds import Box, check_bounds, start_out_of_box
from cem.core.checks import check_device, check_distribution, check_vector, draw_seed
from cem.core.config import MIN_ELITES, CEMConfig
from cem.core.state import FAILED, Settings, State
from cem.core.variance_schedule import NamedSchedule, extend_table
from cem.families.family import Family
from kernels.ops.cma_update import MAX_DIMENSIONS
from kernels.ops.philox import signed64
from kernels.support.checks import check_flags, check_integer, check_uint64


def init(  # noqa: PLR0913 - an option for each setting
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
    """Return the first state of a search.

    Arguments and errors are those of ``CrossEntropyMethod``. A schedule of extra variance is
    called for the first 10,000 generations, or until it fails. Its last variance is used for
    all later generations.
    """
    check_flags(maximize=maximize)
    if config is not None and not isinstance(config, CEMConfig):
        raise TypeError(f"expected a CEMConfig for config, got {type(config).__name__}")
    device = check_device("cpu" if device is None else device)
    families = () if config is None else config.families
    mean, std, has_normal = _check_start(mean, std, dtype, device, families)
    *batch_shape, dim = mean.shape
    box = check_bounds(bounds, mean)
    if config is None:
        config = CEMConfig.chosen(dim, box is not None)
    # The number of columns that are drawn from the normal distribution.
    normal = dim if has_normal else 0
    integers = _integer_bounds(config.integers_of(normal), mean, box)
    if integers is not None and box is not None:
        box = _without_integers(box, integers)
    if population_size is None:
        population_size = config.population_of(normal + config.num_discrete)
    backend = choose_backend(backend, device, _operators_of(config, dim))
    settings, weights = _choose_settings(
        config,
        dim,
        normal,
        population_size,
        maximize,
        backend,
    )
    if box is not None and config.bound_handling == "transform":
        mean, std = start_out_of_box(mean, std, *box)
    low, high = box or (None, None)
    variances: list[float] = []
    # The default schedule adds no variance, so it needs no table.
    if config.schedule != NamedSchedule():
        variances = extend_table([], config.schedule, 1, _ahead)
    record = torch.full((*batch_shape, 5), math.nan, dtype=torch.float64, device=device)
    record[..., FAILED] = 0.0
    return State(
        distribution=torch.stack([mean, std, mean, torch.full_like(mean, math.nan)], dim=-2),
        record=record,
        generation=torch.zeros((), dtype=torch.int64, device=device),
        factor=torch.diag_embed(std) if config.covariance == "full" else None,
        paths=mean.new_zeros(*batch_shape, 2, dim) if config.paths else None,
        discrete=_first_tables(families, batch_shape, device) if families else None,
        seed=problem_seeds(seed, torch.Size(batch_shape), device),
        variance_schedule=doubles(variances, device) if variances else None,
        weights=doubles(weights, device) if weights else None,
        std_floor=_find_std_floor(std, config, integers, settings.population_size),
        low=low,
        high=high,
        integers=integers,
        settings=settings,
    )


def dtype_of(mean: Any) -> torch.dtype:
    """Return the default dtype of a search: that of a float64 mean, otherwise float32."""
    is_double = getattr(mean, "dtype", None) in (torch.float64, np.float64)
    return torch.float64 if is_double else torch.float32


def _check_start(
    mean: Any,
    std: Any,
    dtype: torch.dtype | None,
    device: torch.device,
    families: Sequence[Family],
) -> tuple[Tensor, Tensor, bool]:
    """Return the first mean and standard deviation, and whether there are real parameters.

    The mean and the standard deviation are tensors of shape (..., dim) on ``device``.

    If a search only has discrete parameters, its ``mean`` has 0 dimensions. This function then
    returns a mean with one dimension, from which nothing is drawn.
    """
    if dtype is None:
        dtype = dtype_of(mean)
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"expected torch.float32 or torch.float64 for dtype, got {dtype!r}")
    if isinstance(mean, np.ndarray) and device.type != "cpu":
        raise ValueError(f"expected a tensor as mean on {str(device)!r}, got a NumPy array")
    has_normal = not families or np.shape(mean)[-1] > 0
    if not has_normal:
        mean = np.zeros((*np.shape(mean)[:-1], 1))
        std = 0.0
    first_mean = check_vector("mean", mean, None, dtype, device)
    first_std = check_vector("std", std, first_mean.shape, dtype, device)
    check_distribution(first_mean, first_std)
    return first_mean, first_std, has_normal


def _choose_settings(
    config: CEMConfig,
    dim: int,
    normal: int,
    population_size: int,
    maximize: bool,
    backend: str,
) -> tuple[Settings, list[float]]:
    """Return the constants of a search, and the weights of its candidates by rank.

    With evolution paths, the list contains the weights of all candidates. Otherwise it contains
    the weights of the elites, or is empty if these are equal.

    Args:
        config: The settings of the method.
        dim: The dimension of the normal distribution.
        normal: The number of columns that are drawn from it: ``dim``, or 0 if the search only
            has discrete parameters.
        population_size: The number of candidates per generation.
        maximize: Whether a greater fitness is better.
        backend: The backend of the search.
    """
    # The operators use 32-bit integers for the indices of candidates.
    largest = (1 << 31) - 1
    population_size = check_integer("population_size", population_size, MIN_ELITES, largest)
    num_elites = config.elites_of(population_size)
    weights = rank_weights(num_elites, config.weights)
    learning_rates: Rates | None = None
    if config.paths:
        learning_rates = rates(dim, weights, diagonal=config.covariance == "diagonal")
        weights = all_weights(dim, population_size, weights, learning_rates)
        # The paths add steps of the mean. Those that ``smoothing`` shortens must not look like
        # a search that stays where it is, because the step size would shrink.
        mu_eff = learning_rates.mu_eff / config.smoothing**2
        learning_rates = learning_rates._replace(mu_eff=mu_eff)
    elif config.weights == "equal":
        weights = []
    settings = Settings(
        config=config,
        population_size=population_size,
        num_elites=num_elites,
        maximize=maximize,
        rates=learning_rates,
        backend=backend,
        normal=normal,
    )
    return settings, weights


def _integer_bounds(indices: list[int], mean: Tensor, bounds: Box | None) -> Tensor | None:
    """Return the bounds of the integer parameters as a tensor ``State.integers``, or None.

    It has shape (2, ..., d): the lower bounds, rounded up, and the upper bounds, rounded down.
    All other parameters have NaN. Without integer parameters it is None.
    """
    if not indices:
        return None
    is_integer = torch.zeros(mean.shape[-1], dtype=torch.bool, device="cpu")
    is_integer[indices] = True
    is_integer = is_integer.to(mean.device)
    infinite = torch.full_like(mean, math.inf)
    low, high = (-infinite, infinite) if bounds is None else bounds
    low = torch.where(is_integer, low.ceil(), math.nan)
    high = torch.where(is_integer, high.floor(), math.nan)
    if (low > high).any():
        raise ValueError(f"expected an integer within the bounds of each, got {bounds}")
    return torch.stack([low, high])


def _without_integers(bounds: Box, integers: Tensor) -> Box | None:
    """Return the bounds of the other parameters: an integer is clamped when it is rounded."""
    is_real = integers[0].isnan()
    low = torch.where(is_real, bounds[0], -math.inf)
    high = torch.where(is_real, bounds[1], math.inf)
    is_bounded = low.isfinite() | high.isfinite()
    return (low, high) if is_bounded.any() else None


def _find_std_floor(
    std: Tensor, config: CEMConfig, integers: Tensor | None, population_size: int
) -> Tensor | None:
    """Return the smallest allowed standard deviation, shape (..., d), or None for 0.

    Args:
        std: The first standard deviation, shape (..., d).
        config: Contains the floor as a number, and as a fraction of the first standard
            deviation.
        integers: The lower and upper bounds of the parameters that are integers, shape (2, d);
            NaN for other parameters. None if no parameter is an integer.
        population_size: The number of candidates per generation.
    """
    floor = None
    if config.std_floor > 0.0 or config.floor_share > 0.0:
        floor = (std * config.floor_share).clamp(min=config.std_floor)
    if integers is None:
        return floor
    # This is the margin of R. Hamano et al., CMA-ES with Margin, GECCO 2022: the standard
    # deviation at which one of the N d numbers of a population is expected to be rounded to
    # another integer than the mean. If the mean is an integer, such a number is more than 0.5
    # away from it. Its probability is 1 / (N d), half of it on either side.
    quantile = NormalDist().inv_cdf(1 - 0.5 / (population_size * std.shape[-1]))
    # An integer whose standard deviation is 0 is constant, and has no margin.
    has_margin = ~integers[0].isnan() & (std > 0)
    # As float32, so that the result does not depend on torch's default dtype.
    margin = (has_margin.float() * (0.5 / quantile)).to(std)
    return margin.expand_as(std) if floor is None else torch.maximum(floor, margin)


def _first_tables(families: Sequence[Family], batch: list[int], device: torch.device) -> Tensor:
    """Return ``State.discrete`` at the start, where the best candidate is NaN."""
    tables = torch.cat([family.start() for family in families]).to(device)
    best = tables.new_full((sum(family.columns for family in families),), math.nan)
    return torch.cat([tables, best]).expand(*batch, -1).clone()


def _operators_of(config: CEMConfig, dim: int) -> tuple[str, ...]:
    """Return the operators of ``kernels`` that a search calls."""
    is_fused = config.paths and config.covariance == "full" and dim <= MAX_DIMENSIONS
    operators = CMA_OPERATORS if is_fused else OPERATORS
    return (*operators, "discrete") if config.families else operators


def doubles(numbers: list[float], device: torch.device) -> Tensor:
    """Return numbers as a float64 tensor on a device, without waiting for the device."""
    return torch.tensor(numbers, dtype=torch.float64, device="cpu").to(
        device, non_blocking=True
    )


def problem_seeds(seed: Any, batch_shape: torch.Size, device: torch.device) -> Tensor:
    """Return one seed for each problem of a batch, shape ``batch_shape``, int64.

    Args:
        seed: One of three: a number from 0 to 2^64 - 1; a generator, which draws such a number;
            or an array of numbers with the shape ``batch_shape``. If there is only one number,
            the seeds of a batch are derived from it.
        batch_shape: The shape of the batch; () for a single problem.
        device: The device of the result.
    """
    # If the seed is a generator, draw a number from it; other seeds are returned unchanged.
    seed = draw_seed(seed)
    if isinstance(seed, (Tensor, np.ndarray)):
        seed = seed.tolist()
    if isinstance(seed, (list, tuple)):
        # Without dtype=object, NumPy would turn a mix of integers below and above 2**63 into
        # floats.
        array = np.array(seed, dtype=object)
        if array.shape != tuple(batch_shape):
            raise ValueError(
                f"expected one seed, or seeds of shape {tuple(batch_shape)}, got {array.shape}"
            )
        seeds = array.reshape(-1).tolist()
    elif batch_shape:
        seed = check_uint64("seed", seed)
        seeds = [mix_seed(seed, problem) for problem in range(math.prod(batch_shape))]
    else:
        seeds = [seed]
    # The tensor stores the 64 bits of an unsigned seed as a signed number.
    bits = [signed64(check_uint64("seed", number)) for number in seeds]
    return torch.tensor(bits, dtype=torch.int64, device="cpu").reshape(batch_shape).to(device)
