"""The backends of a search: what draws its candidates and computes its update.

"cpu", "cuda"   the operators of ``kernels``, one call a step. Noise is a function of (seed, generation,
                candidate, dimension), sums have a fixed order and every operation is IEEE's: on the CPU a
                seed gives the same bits on any processor, number of threads and version of torch. Full
                covariance, paths, and bounds by resampling or transform go through torch as well, and are
                as reproducible as that.
"torch"         PyTorch operations, on any device and without a compiler. The same bits for the same
                seed, machine and version of torch; vector widths and versions change them.
"auto"          the operators where they are compiled or can be; otherwise ``"torch"``.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cem._checks import outside
from kernels.support.names import unknown_name

AUTO = "auto"
BACKENDS = ("cpu", "cuda", "torch")
OPERATORS = ("normal", "cem_update")
"""The operators of ``kernels`` that backends "cpu" and "cuda" call."""
_UINT64 = 2**64 - 1


class Sampler(Protocol):
    """A function that draws one generation: what ``CrossEntropyMethod(sampler=...)`` takes."""

    def __call__(
        self, mean: Tensor, std: Tensor, population_size: int, *, seed: int, generation: int
    ) -> Tensor:
        """Draw ``x[i, j]`` of N(mean[j], std[j]^2), independent in every entry.

        Args:
            mean: The means, shape (d,), float32 or float64, any device. Not changed.
            std: The standard deviations, same shape, dtype and device, ``>= 0``. Not changed.
            population_size: The number of candidates, ``>= 1``.
            seed: The seed of the search, ``0 <= seed < 2**64``.
            generation: The number of the generation, ``>= 0``.

        Returns:
            A new tensor of shape (population_size, d), with the dtype and device of ``mean``; the same for
            the same arguments.
        """
        ...


def mix_seed(seed: int, generation: int) -> int:
    """Hash (seed, generation) to 64 bits, so that neighbouring seeds and generations are unrelated.

    The finaliser of SplitMix64 (G. Steele, D. Lea, C. Flood: Fast Splittable Pseudorandom Number Generators,
    OOPSLA 2014) over the seed, then over its result and the generation. It mixes all bits into the low
    32, the only ones of a seed that the Mersenne Twister of torch's CPU generator takes.

    Args:
        seed: ``0 <= seed < 2**64``.
        generation: ``>= 0``.

    Returns:
        An integer in ``0 .. 2**64 - 1``.
    """
    state = seed
    for word in (0, generation):
        state = (state + word + 0x9E3779B97F4A7C15) & _UINT64
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _UINT64
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _UINT64
        state ^= state >> 31
    return state


def torch_sampler(mean: Tensor, std: Tensor, population_size: int, *, seed: int, generation: int) -> Tensor:
    """Draw as backend ``"torch"``; a ``Sampler``. On the CPU float64 has NumPy's noise, float32 torch's."""
    mixed, shape = mix_seed(seed, generation), (population_size, mean.numel())
    if mean.device.type == "cpu" and mean.dtype == torch.float64:
        # The ziggurat takes less than half the time of torch, which has no vector code for doubles.
        noise = np.random.Generator(np.random.SFC64(mixed)).standard_normal(shape)
        return torch.addcmul(mean, torch.from_numpy(noise), std)
    out = torch.empty(shape, dtype=mean.dtype, device=mean.device)
    out.normal_(generator=torch.Generator(mean.device).manual_seed(mixed))
    return torch.addcmul(mean, out, std, out=out)


def sample_problems(
    sampler: Sampler, mean: Tensor, std: Tensor, population_size: int, seeds: Sequence[int], generation: int
) -> Tensor:
    """Draw a generation by a sampler, problem by problem.

    Args:
        sampler: The sampler.
        mean: The means, shape (..., d).
        std: The standard deviations, like ``mean``.
        population_size: N, the candidates a problem.
        seeds: The seed of each problem.
        generation: The number of the generation.

    Returns:
        The candidates, shape (..., N, d), contiguous.

    Raises:
        ValueError: If the sampler gives something else.
    """
    dim = mean.shape[-1]
    rows = zip(mean.view(-1, dim), std.view(-1, dim), seeds, strict=True)
    drawn = [sampler(m, s, population_size, seed=seed, generation=generation) for m, s, seed in rows]
    shape = population_size, dim
    for x in drawn:
        if (x.shape, x.dtype, x.device) != (shape, mean.dtype, mean.device):
            raise ValueError(
                f"expected a {mean.dtype} tensor of shape {shape} on {mean.device} from the sampler, "
                f"got {x.dtype}, {tuple(x.shape)}, {x.device}"
            )
    return torch.stack(drawn).view(*mean.shape[:-1], *shape) if mean.dim() > 1 else drawn[0].contiguous()


def choose_backend(name: str, device: torch.device) -> str:
    """Return the backend of a search, built and ready: ``"auto"`` is resolved.

    Args:
        name: One of ``BACKENDS``, or ``"auto"``: a failed compilation then gives a RuntimeWarning, a missing
            compiler nothing.
        device: The device of the search.

    Raises:
        ValueError: If the name is unknown, or the backend does not work on the device.
    """
    if not isinstance(name, str) or name not in (AUTO, *BACKENDS):
        raise unknown_name("backend", str(name), (AUTO, *BACKENDS))
    if name == "torch" or (name == AUTO and device.type not in BACKENDS):
        return "torch"
    wanted = device.type if name == AUTO else name
    if device.type != wanted:
        other = "a CUDA device" if wanted == "cuda" else "the CPU"
        raise ValueError(
            f"expected {other} for backend {wanted!r}, got {str(device)!r}: "
            f"take device {wanted!r}, or backend 'torch' on {str(device)!r}"
        )
    from kernels import CompilerMissingError

    try:
        _prepare(device)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # the operators cannot be built, or do not run on this device
        if name != AUTO:
            raise ValueError(
                f"backend {wanted!r} is not available: {error}; or use backend 'torch'"
            ) from error
        if not isinstance(error, CompilerMissingError):
            warnings.warn(f"taking backend 'torch': {error}", RuntimeWarning, stacklevel=outside())
        return "torch"
    return wanted


_prepared: set[torch.device] = set()


def _prepare(device: torch.device) -> None:
    """Build the operators side by side, and call them once."""
    if device in _prepared:
        return
    from kernels.loader.extension import build_missing
    from kernels.ops.library import extension

    kinds = ("cpu", "cuda") if device.type == "cuda" else ("cpu",)
    build_missing([extension(operator, kind) for kind in kinds for operator in OPERATORS])
    from cem.functional import ask, init, tell

    state = init([0.0], 1.0, 2, maximize=True, seed=0, backend="torch", device=device)
    state = state._replace(settings=replace(state.settings, backend=device.type))
    candidates, state = ask(state)
    tell(state, candidates, candidates[:, 0])
    _prepared.add(device)
