"""The backends of a search: they draw the candidates and compute the update.

"cpu", "cuda"   The operators of ``kernels``, one call per step. The noise is a function of
                seed, generation, candidate and dimension; sums are added in a fixed order, and
                all operations follow IEEE 754. So on the CPU a seed gives the same bits on any
                processor, with any number of threads and any version of torch. Some searches
                also use torch, and are only as reproducible as torch: those with a full
                covariance or paths but not both, those that are too large for ``cma_update``,
                and those with bounds by resampling or transform.
"torch"         PyTorch operations, on any device and without a compiler. The same seed,
                machine and version of torch give the same bits.
"auto"          The operators if they are compiled or can be compiled, otherwise ``"torch"``.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.checks import warn
from kernels.ops.cem_update import cem_update
from kernels.ops.normal import sample_normal_rows
from kernels.support.names import unknown_name

AUTO = "auto"
BACKENDS = ("cpu", "cuda", "torch")
OPERATORS = ("normal", "cem_update")  # what backends "cpu" and "cuda" call
CMA_OPERATORS = (*OPERATORS, "cma_update")  # with a full covariance and paths
_UINT64 = 2**64 - 1


def mix_seed(seed: int, generation: int) -> int:
    """Hash (seed, generation) to 64 bits, so that neighbouring numbers yield unrelated seeds.

    The finaliser of SplitMix64 (G. Steele, D. Lea, C. Flood: Fast Splittable Pseudorandom
    Number Generators, OOPSLA 2014) is applied to the seed, and then to its result plus the
    generation. Every bit affects the lower 32 bits, which are the only ones that the Mersenne
    Twister of torch's CPU generator uses.
    """
    state = seed
    for word in (0, generation):
        state = (state + word + 0x9E3779B97F4A7C15) & _UINT64
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _UINT64
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _UINT64
        state ^= state >> 31
    return state


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """Return the matrix product a @ b, in full precision under autocast."""
    with torch.autocast(a.device.type, enabled=False):
        return a @ b


def torch_sampler(
    mean: Tensor,
    std: Tensor,
    population_size: int,
    *,
    seed: int,
    generation: int,
    block: int | None = None,
) -> Tensor:
    """Return N samples of the normal distribution N(mean, std^2), shape (N, d).

    ``mean`` and ``std`` have shape (d,). The noise depends on seed and generation alone. On the
    CPU, NumPy draws it in float64, and torch in float32. Torch's noise of a sample depends on
    how many are drawn with it, so it draws ``block`` samples at a time; None means N.
    """
    mixed_seed = mix_seed(seed, generation)
    shape = (population_size, mean.numel())
    if mean.device.type == "cpu" and mean.dtype == torch.float64:
        # NumPy's ziggurat method takes less than half the time of torch, which has no vector
        # code for doubles.
        generator = np.random.Generator(np.random.SFC64(mixed_seed))
        noise = torch.from_numpy(generator.standard_normal(shape))
        return torch.addcmul(mean, noise, std)
    block = block or population_size
    num_blocks = -(-population_size // block)
    noise = mean.new_empty(num_blocks, block, mean.numel())
    for samples in noise:
        samples.normal_(generator=torch.Generator(mean.device).manual_seed(mixed_seed))
        mixed_seed = mix_seed(mixed_seed, generation)
    # Compute mean + noise * std in the memory of the noise.
    return torch.addcmul(mean, noise, std, out=noise).flatten(0, 1)[:population_size]


def torch_sample(
    state: Any,
    rows: Tensor,
    size: int,
    *,
    seeds: Sequence[int],
    generation: int,
) -> Tensor:
    """Draw from the normal distributions of a batch of problems with ``torch_sampler``.

    Args:
        state: The state, which has the population size.
        rows: The distributions, shape (..., R, d). The first of the R rows is the mean, and the
            second the standard deviation.
        size: N, the number of samples for each problem.
        seeds: One seed for each problem, in the order of the flattened batch.
        generation: The number of the generation.

    Returns:
        The samples, shape (..., N, d).
    """
    *batch_shape, num_rows, dim = rows.shape
    problems = rows.reshape(-1, num_rows, dim)
    draws = []
    for problem, seed in zip(problems, seeds, strict=True):
        mean = problem[0]
        std = problem[1]
        block = state.settings.population_size
        draws.append(
            torch_sampler(mean, std, size, seed=seed, generation=generation, block=block)
        )
    return torch.stack(draws).view(*batch_shape, size, dim)


def choose_backend(
    name: str,
    device: torch.device,
    operators: Sequence[str] = OPERATORS,
) -> str:
    """Return the backend "cpu", "cuda" or "torch" for a device, and compile its operators.

    The backends "cpu" and "cuda" call the compiled ``operators``; "torch" needs no operators.
    "auto" chooses the backend of the device. If its operators cannot be built, "auto" becomes
    "torch", with a RuntimeWarning.

    Raises:
        ValueError: If the backend is unknown, not for this device, or cannot be built.
    """
    if name not in (AUTO, *BACKENDS):
        raise unknown_name("backend", str(name), (AUTO, *BACKENDS))
    # The operators only exist for the CPU and for CUDA.
    if name == "torch" or (name == AUTO and device.type not in BACKENDS):
        return "torch"
    backend = device.type if name == AUTO else name
    if device.type != backend:
        expected = "a CUDA device" if backend == "cuda" else "the CPU"
        raise ValueError(
            f"expected {expected} for backend {backend!r}, got {str(device)!r}: "
            f"take device {backend!r}, or backend 'torch' on {str(device)!r}"
        )

    try:
        _build_and_try(device, operators)
    except torch.OutOfMemoryError:
        # This does not mean that the operators are unusable.
        raise
    except (RuntimeError, OSError) as error:
        # The operators cannot be built, or do not run on this device. "auto" then falls back.
        if name != AUTO:
            message = f"backend {backend!r} is not available: {error}; or use backend 'torch'"
            raise ValueError(message) from error
        # The warning is a single line, whatever the error is.
        reason = " ".join(str(error).split())
        message = f"taking backend 'torch', which is slower: {reason}"
        warn(message)
        return "torch"
    return backend


@cache
def _build_and_try(device: torch.device, operators: Sequence[str]) -> None:
    """Build the operators in parallel, and test whether they run on the device.

    The test calls two of them for the smallest problem: two candidates with one parameter.
    """
    from kernels.loader.extension import build_missing
    from kernels.ops.library import extension

    kinds = ("cpu", "cuda") if device.type == "cuda" else ("cpu",)
    build_missing([extension(operator, kind) for kind in kinds for operator in operators])
    # The mean, the standard deviation, the averaged mean and the best candidate, shape (4, 1).
    rows = torch.zeros(4, 1, dtype=torch.float64, device=device)
    record = rows.new_zeros(5)
    generation = torch.zeros((), dtype=torch.int64, device=device)
    x = sample_normal_rows(rows, 2, seed=generation, generation=generation)
    cem_update(x[:, 0], x, rows, record, generation, 2, maximize=True)
