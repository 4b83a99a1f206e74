"""The start of a search: its elites, weights, seeds and first state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem._checks import as_real, check_real
from cem.adaptation import all_weights
from cem.functional import REFUSED, STD, Settings, State
from cem.sampling import mix_seed
from kernels.ops.philox import signed64
from kernels.support.checks import check_integer

MIN_ELITES = 2  # one elite has no variance: the search would stop
_ROUNDING = 1e-9  # 0.07 * 100 is 7.000000000000001, and seven elites are meant
_DIGITS = 12  # of a weight: the logarithms of C libraries differ in the last bit


def first_rows(mean: Tensor, std: Tensor) -> Tensor:
    """Return the rows of a distribution at the start, shape (..., 4, d)."""
    return torch.stack([mean, std, mean, torch.full_like(mean, math.nan)], dim=-2)


def first_state(
    mean: Tensor,
    std: Tensor,
    settings: Settings,
    *,
    seed: Tensor,
    weights: str,
    std_floor: Tensor | None,
    bounds: tuple[Tensor, Tensor] | None,
) -> State:
    """Return the state before the first generation, without extra variance; see ``State``."""
    device, (*batch_shape, dim) = mean.device, mean.shape
    ranked = rank_weights(settings.num_elites, weights)
    every = None
    if settings.rates is not None:
        every = doubles(all_weights(dim, settings.population_size, ranked, settings.rates), device)
    low, high = (None, None) if bounds is None else bounds
    return State(
        distribution=first_rows(mean, std),
        record=_first_record(batch_shape, device),
        generation=torch.zeros((), dtype=torch.int64, device=device),
        seed=seed,
        extra_variance=None,
        weights=None if weights == "equal" else doubles(ranked, device),
        std_floor=std_floor,
        all_weights=every,
        low=low,
        high=high,
        factor=torch.diag_embed(std) if settings.covariance == "full" else None,
        paths=None if settings.rates is None else mean.new_zeros(*batch_shape, 2, dim),
        settings=settings,
    )


def restarted(state: State, distribution: Tensor) -> State:
    """Return the state of a search that goes on from other rows, shape (..., 4, d), without its past."""
    return state._replace(
        distribution=distribution,
        record=_first_record(state.record.shape[:-1], state.record.device),
        factor=None if state.factor is None else torch.diag_embed(distribution[..., STD, :]),
        paths=None if state.paths is None else torch.zeros_like(state.paths),
    )


def _first_record(batch_shape: Sequence[int], device: torch.device) -> Tensor:
    record = torch.full((*batch_shape, 5), math.nan, dtype=torch.float64, device=device)
    record[..., REFUSED] = 0.0
    return record


def doubles(numbers: list[float], device: torch.device) -> Tensor:
    """Return numbers as float64 on a device; does not wait for it."""
    return torch.tensor(numbers, dtype=torch.float64).to(device, non_blocking=True)


def rank_weights(num_elites: int, kind: str) -> list[float]:
    """Return the weights of the elites by rank, ``"equal"`` or ``"log"``, of sum 1."""
    raw = [1.0] * num_elites
    if kind == "log":
        raw = [math.log(num_elites + 0.5) - math.log(rank) for rank in range(1, num_elites + 1)]
    total = math.fsum(raw)
    return [round(weight / total, _DIGITS) for weight in raw]


def problem_seeds(seed: Any, batch_shape: torch.Size) -> tuple[int, ...]:
    """Return the seed of each problem."""
    count = math.prod(batch_shape)
    if seed is None:
        seed = int(torch.randint(2**63 - 1, ()))
    if isinstance(seed, Tensor):
        seed = as_real("seed", seed)
    if isinstance(seed, (Tensor, np.ndarray, list, tuple)):
        # As objects: NumPy makes floats of numbers on both sides of 2**63.
        each = np.array(seed.tolist() if isinstance(seed, (Tensor, np.ndarray)) else seed, dtype=object)
        if each.shape != tuple(batch_shape):
            raise ValueError(f"expected one seed, or seeds of shape {tuple(batch_shape)}, got {each.shape}")
        return tuple(check_integer("seed", one, 0, 2**64 - 1) for one in each.reshape(-1).tolist())
    seed = check_integer("seed", seed, 0, 2**64 - 1)
    return tuple(mix_seed(seed, problem) for problem in range(count)) if batch_shape else (seed,)


def seed_tensor(seeds: tuple[int, ...], batch_shape: torch.Size, device: torch.device) -> Tensor:
    """Return the 64 bits of each seed, shape ``batch_shape``, int64."""
    return torch.tensor([signed64(seed) for seed in seeds], dtype=torch.int64).reshape(batch_shape).to(device)


def count_elites(
    population_size: int, elite_fraction: float | None, num_elites: int | None, default: float
) -> int:
    """Return the number of elites of a share, or the number itself."""
    if num_elites is not None:
        if elite_fraction is not None:
            raise ValueError(
                f"expected elite_fraction or num_elites, got both: {elite_fraction!r} and {num_elites!r}"
            )
        return check_integer("num_elites", num_elites, MIN_ELITES, population_size)
    fraction = default if elite_fraction is None else elite_fraction
    fraction = check_real("elite_fraction", fraction, 0.0, 1.0, open_low=True)
    return max(MIN_ELITES, math.ceil(fraction * population_size - _ROUNDING))
