"""Sampling backends: they draw a normal population and are chosen by name.

A sample is a pure function of (seed, generation). Asking twice, dropping a generation or resuming gives the
same candidates, and a checkpoint needs no generator state.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from kernels.names import unknown_name

AUTO = "auto"
_UINT64 = 2**64 - 1


class Sampler(Protocol):
    """A function that draws one generation, made by a backend."""

    def __call__(
        self, mean: Tensor, std: Tensor, population_size: int, *, seed: int, generation: int
    ) -> Tensor:
        """Draw ``x[i, j] ~ N(mean[j], std[j]^2)``, independent in every entry.

        Args:
            mean: The means, shape (dim,), float32 or float64, any device. Not changed.
            std: The standard deviations, same shape, dtype and device, ``>= 0``. Not changed.
            population_size: The number of candidates, ``>= 1``.
            seed: The seed of the run, ``0 <= seed < 2**64``.
            generation: The number of the generation, ``>= 0``.

        Returns:
            A new tensor of shape (population_size, dim), with the dtype and device of ``mean``; the same for
            the same arguments.
        """
        ...


SamplerFactory = Callable[[torch.device], Sampler]
"""Makes the sampler of a backend for one device, or raises ValueError with the remedy."""


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


class _Recycler:
    """Memory for populations on the CPU, reused when the tensor and its views are freed.

    Fresh memory costs page faults: 1.9 ms for 1000 x 1000 float32; drawing them takes 4.3 ms (one core). At
    most two populations are kept: those alive in a loop of ask and tell.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[Tensor, weakref.ref[np.ndarray[Any, Any]]]] = []

    def empty(self, shape: tuple[int, int], dtype: torch.dtype) -> np.ndarray[Any, Any]:
        """Return an uninitialised array; it is in use as long as a tensor made ``from_numpy`` of it."""
        free = [(base, lent) for base, lent in self._kept if lent() is None]
        taken = [(base, lent) for base, lent in self._kept if lent() is not None]
        base = next((base for base, _ in free if base.shape == shape and base.dtype == dtype), None)
        if base is None:
            base = torch.empty(shape, dtype=dtype, device="cpu")
        array: np.ndarray[Any, Any] = base.numpy()
        self._kept = [*taken, (base, weakref.ref(array))][-2:]
        return array


def _cpu_sampler() -> Sampler:
    generator = torch.Generator("cpu")
    recycler = _Recycler()

    def sample(mean: Tensor, std: Tensor, population_size: int, *, seed: int, generation: int) -> Tensor:
        array = recycler.empty((population_size, mean.numel()), mean.dtype)
        out = torch.from_numpy(array)
        if mean.dtype == torch.float64:
            # NumPy's ziggurat takes less than half the time of torch, which has no vector code for doubles.
            np.random.Generator(np.random.SFC64(mix_seed(seed, generation))).standard_normal(out=array)
        else:
            out.normal_(generator=generator.manual_seed(mix_seed(seed, generation)))
        return torch.addcmul(mean, out, std, out=out)

    return sample


def _device_sampler(device: torch.device) -> Sampler:
    generator = torch.Generator(device)

    def sample(mean: Tensor, std: Tensor, population_size: int, *, seed: int, generation: int) -> Tensor:
        out = torch.empty((population_size, mean.numel()), dtype=mean.dtype, device=mean.device)
        out.normal_(generator=generator.manual_seed(mix_seed(seed, generation)))
        return torch.addcmul(mean, out, std, out=out)

    return sample


def _torch_sampler(device: torch.device) -> Sampler:
    # The bits are torch's and NumPy's: the same for any number of threads, but not for another kind of
    # device, and not promised from one version of them, or one vector width of the processor, to the next.
    return _cpu_sampler() if device.type == "cpu" else _device_sampler(device)


def _cuda_sampler(device: torch.device) -> Sampler:
    """Return the sampler of the fused kernel, compiled and run once."""
    if device.type != "cuda":
        raise ValueError(
            f"expected a CUDA device for backend 'cuda', got {str(device)!r}: "
            f"take device 'cuda', or backend 'torch' on {str(device)!r}"
        )
    from kernels.normal import sample_normal

    def sample(mean: Tensor, std: Tensor, population_size: int, *, seed: int, generation: int) -> Tensor:
        return sample_normal(mean, std, population_size, seed=seed, generation=generation, dim_first=False)

    try:
        sample(torch.zeros(1, device=device), torch.zeros(1, device=device), 1, seed=0, generation=0)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # the kernel cannot be built, or does not run on this GPU
        raise ValueError(f"backend 'cuda' is not available: {error}; or use backend 'torch'") from error
    return sample


_FACTORIES: dict[str, SamplerFactory] = {"cuda": _cuda_sampler, "torch": _torch_sampler}


def register_backend(name: str, factory: SamplerFactory) -> None:
    """Register a backend, or replace the one of that name.

    Args:
        name: The name that ``CrossEntropyMethod(backend=...)`` takes.
        factory: Called once for each optimizer, with its device; costly imports belong there.

    Raises:
        ValueError: If the name is empty or ``auto``.
    """
    if name in ("", AUTO):
        raise ValueError(f"expected a name for the backend, not empty and not {AUTO!r}, got {name!r}")
    _FACTORIES[name] = factory


def available_backends() -> tuple[str, ...]:
    """Return the names of the registered backends, in alphabetical order."""
    return tuple(sorted(_FACTORIES))


def choose_backend(name: str, device: torch.device) -> str:
    """Return the name of the backend to draw with: ``auto`` is resolved, other names stay.

    Args:
        name: The name of a backend, or ``"auto"``: ``"cuda"`` on CUDA devices where its kernel is compiled or
            can be, else ``"torch"``. A failed compilation gives a RuntimeWarning.
        device: The device of the candidates.
    """
    if name != AUTO:
        return name
    if device.type != "cuda":
        return "torch"
    from kernels import CompilerMissingError

    try:
        make_sampler("cuda", device)
    except ValueError as error:
        if not isinstance(error.__cause__, CompilerMissingError):
            warnings.warn(f"drawing with backend 'torch': {error}", RuntimeWarning, stacklevel=3)
        return "torch"
    return "cuda"


def make_sampler(name: str, device: torch.device) -> Sampler:
    """Return the sampler of a backend for a device.

    Args:
        name: One of ``available_backends()``.
        device: The device of the candidates.

    Raises:
        ValueError: If no backend has that name, or it does not support the device.
    """
    if not isinstance(name, str) or name not in _FACTORIES:
        raise unknown_name("backend", str(name), (AUTO, *available_backends()))
    return _FACTORIES[name](device)
