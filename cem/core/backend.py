"""The backends of a search: what draws its candidates and computes its update.

"cpu", "cuda"   The operators of ``kernels``, one call per step. Noise is a function of (seed,
                generation, candidate, dimension), sums have a fixed order, and every operation
                is IEEE's: on the CPU a seed gives the same bits on any processor, with any
                number of threads and any version of torch. Some searches also use torch, and
                are only as reproducible as torch: those with a full covariance or paths but not
                both, those beyond the sizes of ``cma_update``, and bounds by resampling or
                transform.
"torch"         PyTorch operations, on any device and without a compiler. The same seed,
                machine and version of torch give the same bits.
"auto"          The operators where they are compiled or can be; otherwise ``"torch"``.
"""

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.checks import outside
from kernels.ops.cem_update import cem_update
from kernels.ops.normal import sample_normal_rows
from kernels.support.names import unknown_name

AUTO = "auto"
BACKENDS = ("cpu", "cuda", "torch")
OPERATORS = ("normal", "cem_update")  # what backends "cpu" and "cuda" call
CMA_OPERATORS = (*OPERATORS, "cma_update")  # with a full covariance and paths
_UINT64 = 2**64 - 1


def mix_seed(seed: int, generation: int) -> int:
    """Hash (seed, generation) to 64 bits, so that neighbouring numbers give unrelated seeds.

    The finaliser of SplitMix64 (G. Steele, D. Lea, C. Flood: Fast Splittable Pseudorandom
    Number Generators, OOPSLA 2014) is applied to the seed, then to its result plus the
    generation. All bits reach the lower 32, the only ones that the Mersenne Twister of torch's
    CPU generator takes.
    """
    state = seed
    for word in (0, generation):
        state = (state + word + 0x9E3779B97F4A7C15) & _UINT64
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _UINT64
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _UINT64
        state ^= state >> 31
    return state


def torch_sampler(
    mean: Tensor,
    std: Tensor,
    population_size: int,
    *,
    seed: int,
    generation: int,
) -> Tensor:
    """Return draws of N(mean, std^2) by backend ``"torch"``, shape (N, d).

    On the CPU the noise of float64 is NumPy's, that of float32 torch's.
    """
    mixed = mix_seed(seed, generation)
    shape = (population_size, mean.numel())
    if mean.device.type == "cpu" and mean.dtype == torch.float64:
        # The ziggurat takes less than half the time of torch, which has no vector code for
        # doubles.
        noise = np.random.Generator(np.random.SFC64(mixed)).standard_normal(shape)
        return torch.addcmul(mean, torch.from_numpy(noise), std)
    out = torch.empty(shape, dtype=mean.dtype, device=mean.device)
    out.normal_(generator=torch.Generator(mean.device).manual_seed(mixed))
    return torch.addcmul(mean, out, std, out=out)


def torch_sample(
    state: Any,
    rows: Tensor,
    size: int,
    *,
    seeds: Sequence[int],
    generation: int,
) -> Tensor:
    """Draw by ``torch_sampler``, problem by problem; with seeds and generation a ``Sample``."""
    problems = rows.reshape(-1, *rows.shape[-2:])
    draws = [
        torch_sampler(problem[0], problem[1], size, seed=seed, generation=generation)
        for problem, seed in zip(problems, seeds, strict=True)
    ]
    return torch.stack(draws).view(*rows.shape[:-2], size, rows.shape[-1])


def choose_backend(
    name: str,
    device: torch.device,
    operators: Sequence[str] = OPERATORS,
) -> str:
    """Return the backend of a search whose operators are built and ready.

    ``"auto"`` becomes ``"torch"`` where they cannot be built; a RuntimeWarning says why.
    """
    if name not in (AUTO, *BACKENDS):
        raise unknown_name("backend", str(name), (AUTO, *BACKENDS))
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
        _prepare(device, operators)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, OSError) as error:
        # The operators cannot be built, or do not run on this device.
        if name != AUTO:
            message = f"backend {backend!r} is not available: {error}; or use backend 'torch'"
            raise ValueError(message) from error
        reason = " ".join(str(error).split())
        message = f"taking backend 'torch', which is slower: {reason}"
        warnings.warn(message, RuntimeWarning, stacklevel=outside())
        return "torch"
    return backend


@cache
def _prepare(device: torch.device, operators: Sequence[str]) -> None:
    """Build the operators side by side, and call two of them, which must run on the device."""
    from kernels.loader.extension import build_missing
    from kernels.ops.library import extension

    kinds = ("cpu", "cuda") if device.type == "cuda" else ("cpu",)
    build_missing([extension(operator, kind) for kind in kinds for operator in operators])
    rows = torch.zeros(4, 1, dtype=torch.float64, device=device)
    record = rows.new_zeros(5)
    generation = torch.zeros((), dtype=torch.int64, device=device)
    x = sample_normal_rows(rows, 2, seed=generation, generation=generation)
    cem_update(x[:, 0], x, rows, record, generation, 2, maximize=True)
