"""Samples ``mean + std * z`` with z ~ N(0, 1) made inside the kernel: function, gradients, reference.

z is a pure function of (seed, generation, sample, dimension), so it is nowhere stored: the backward pass
makes it again. stream.h, tile.h and box_muller.h say how: Philox4x32-10 and the Box-Muller transform.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from kernels.ops.library import Library, is_traced_or_transformed, is_transformed
from kernels.ops.normal.arguments import (
    Bound,
    as_int,
    check_bounds,
    check_generation,
    check_parameters,
    check_seed,
    check_types,
)
from kernels.ops.normal.autograd import compute_type, register
from kernels.ops.philox import signed64
from kernels.support.checks import check_flags


def sample_normal(
    mean: Tensor,
    std: Tensor,
    num_samples: int,
    *,
    seed: int | Tensor | None = None,
    generation: int | Tensor = 0,
    generator: torch.Generator | None = None,
    shared_noise: bool = False,
    antithetic: bool = False,
    bounds: tuple[Bound, Bound] | None = None,
    dim_first: bool = True,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Draws ``mean[j] + std[j] * z[j, i]``, differentiable in mean and std, twice.

    With a seed, ``z[j, i]`` is a pure function of (seed, generation, i, j): it depends neither on
    ``num_samples``, nor on the number of dimensions, nor on the layout. float32, float16 and bfloat16 have
    the same z, float64 another one. Samples have the same bits on every CPU with any number of threads, and
    on every GPU; in float64 on both. In float32, CPU and CUDA differ by no more than 4e-6 times
    ``|mean| + std * max(1, |z|)``. Without a seed, torch's generator gives one: torch.manual_seed,
    torch.get_rng_state and CUDA graphs govern it as they do torch.randn, and every call differs.

    Leading dimensions are a batch of problems, each with a seed of its own: problem p has the numbers of a
    call with ``mean[p]``, ``std[p]`` and ``seed[p]``. A generation in the device's memory can change between
    the replays of a CUDA graph.

    Examples:
        >>> x = sample_normal(torch.zeros(3), torch.ones(3), 1000, seed=1)
        >>> x.shape
        torch.Size([3, 1000])

    Args:
        mean: shape (..., d); float64, float32, float16 or bfloat16; CPU or CUDA. Rows of a wider tensor, one
            a problem, are read where they are.
        std: like mean, of the same shape, dtype and device.
        num_samples: N, 0 or more.
        seed: 0 <= seed < 2**64, for mean of shape (d,); or an int64 tensor of the batch shape on mean's
            device, whose 64 bits are taken as an unsigned number.
        generation: which of the independent sets of samples of a seed; 0 <= generation < 2**38; or an int64
            tensor of shape () on mean's device, taken modulo 2**38.
        generator: what gives the seeds where ``seed`` is None, of mean's device; torch's default one if None.
        shared_noise: one z a sample, that of dimension 0, for all dimensions. All samples then lie on a line.
        antithetic: samples 2 k and 2 k + 1 have z and -z; z is what it would be without.
        bounds: (low, high), numbers or tensors of shape (d,) or (..., d): each sample is clamped to them, and
            has gradient 0 where it was. They themselves get no gradient.
        dim_first: (..., d, N) if True, else (..., N, d).
        dtype: of the result, mean's if None. float16 and bfloat16 are computed in float32 and rounded.

    Returns:
        A new contiguous tensor.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong shape, device or value.
        kernels.BuildError: the operator has to be built, and cannot be.
    """
    # The shortest way for the commonest calls: the operators check, and what they refuse goes the long way.
    try:
        if not (
            shared_noise
            or antithetic
            or dtype is not None
            or is_traced_or_transformed()
            or ((mean.requires_grad or std.requires_grad) and torch.is_grad_enabled())
        ):
            samples: Tensor | None = None
            if seed is None:
                if bounds is None and type(generation) is int and generation == 0:
                    samples = _sample_unseeded(mean, std, num_samples, generator, dim_first)
            elif generator is None and bounds is None and type(seed) is type(generation) is int:
                if not dim_first:
                    samples = _seeded(mean, std, num_samples, seed, generation, False)
                elif generation:
                    samples = _seeded(mean, std, num_samples, seed, generation)
                else:
                    samples = _seeded(mean, std, num_samples, seed)
            if samples is not None:
                return samples
    except (RuntimeError, TypeError, ValueError, AttributeError):
        pass
    check_types(mean, std, generator, dtype)
    check_flags(shared_noise=shared_noise, antithetic=antithetic, dim_first=dim_first)
    num_samples = as_int("num_samples", num_samples)
    dtype = dtype or mean.dtype
    check_parameters(mean, std, num_samples, dtype)
    number, seeds = _seed(seed, mean, generator)
    generation, generations = _generation(generation, mean)
    low, high = check_bounds(bounds, mean, dtype) if bounds is not None else (None, None)
    _LIBRARY.ensure(mean)
    operators = torch.ops.cem_tetris
    noise = (num_samples, number, seeds, generation, generations, shared_noise, antithetic)
    if is_transformed():
        with forward_ad._set_fwd_grad_enabled(False), torch.no_grad():
            z = operators.sample_normal_no_grad.default(
                *_standard(mean), *noise, None, None, dim_first, compute_type(dtype)
            )
        limits = None if low is None or high is None else (low, high)
        return sample_normal_reference(mean, std, z, bounds=limits, dim_first=dim_first).to(dtype)
    recorded = (mean.requires_grad or std.requires_grad) and torch.is_grad_enabled()
    sample = operators.sample_normal if recorded else operators.sample_normal_no_grad
    try:
        result: Tensor = sample.default(mean, std, *noise, low, high, dim_first, dtype)
        return result
    except RuntimeError:  # where there is no memory, torch says so better than the operator
        mean.new_empty((*mean.shape, num_samples), dtype=dtype)
        raise


def sample_normal_rows(
    rows: Tensor,
    num_samples: int,
    *,
    seed: Tensor,
    generation: Tensor,
    bounds: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Draws as ``sample_normal`` from the first two of some rows, mean and std; no views of them are made.

    Args:
        rows: shape (..., R, d), R >= 2; float64, float32, float16 or bfloat16; CPU or CUDA.
        num_samples: N, 0 or more.
        seed: shape (...), int64.
        generation: shape (), int64.
        bounds: (low, high), of shape (d,) or (..., d): each sample is clamped to them.

    Returns:
        A new contiguous tensor, shape (..., N, d), dtype of ``rows``.

    Raises:
        TypeError: As ``sample_normal``.
        ValueError: As ``sample_normal``.
        kernels.BuildError: As ``sample_normal``.
    """
    try:
        if not (is_traced_or_transformed() or (rows.requires_grad and torch.is_grad_enabled())):
            samples: Tensor = _rows(rows, num_samples, seed, generation, *(bounds or ()))
            return samples
    except (RuntimeError, TypeError, ValueError, AttributeError):
        pass  # sample_normal says what is wrong
    if not isinstance(rows, Tensor):
        raise TypeError(f"expected rows to be a tensor, got {type(rows).__name__}")
    if rows.dim() < 2 or rows.shape[-2] < 2:
        raise ValueError(f"expected rows of shape (..., R, d), R >= 2, got {tuple(rows.shape)}")
    return sample_normal(
        rows[..., 0, :],
        rows[..., 1, :],
        num_samples,
        seed=seed,
        generation=generation,
        bounds=bounds,
        dim_first=False,
    )


def _sample_unseeded(
    mean: Tensor, std: Tensor, num_samples: int, generator: torch.Generator | None, dim_first: bool
) -> Tensor | None:
    """Returns samples by a seed from torch's generator, or None where a mode has to see the drawing."""
    if torch._C._len_torch_dispatch_stack() > 0:
        return None
    _LIBRARY.ensure(mean)  # before a seed is drawn for nothing
    seed, generation = _draw_seed(mean, generator)
    samples: Tensor = _seeded(mean, std, num_samples, seed, generation, dim_first)
    return samples


def _draw_seed(mean: Tensor, generator: torch.Generator | None) -> tuple[int, int]:
    """Returns a seed and a generation from torch's generator.

    On CUDA they are the generator's seed and its offset, which moves on as it does for torch's kernels: to
    draw a number there would take a kernel more. The generator refuses that while a CUDA graph is captured.
    """
    if not mean.is_cuda:
        return int(torch.randint(0, _SEEDS, (), dtype=torch.int64, device="cpu", generator=generator)), 0
    if generator is None:
        generator = torch.cuda.default_generators[mean.device.index]
    with _drawing:
        offset = generator.get_offset()
        generator.set_offset(offset + 4)  # torch asks for a multiple of 4
    return (generator.initial_seed() ^ _UNSEEDED) & _SEEDS, offset // 4


def sample_normal_reference(
    mean: Tensor, std: Tensor, z: Tensor, *, bounds: tuple[Bound, Bound] | None = None, dim_first: bool = True
) -> Tensor:
    """Returns what ``sample_normal`` makes of noise that is given, in plain PyTorch; torch differentiates it.

    Args:
        mean: shape (..., d).
        std: shape (..., d).
        z: the noise, shape (..., d, N) if ``dim_first``, else (..., N, d).
        bounds: as in ``sample_normal``.
        dim_first: which of the two shapes.
    """
    samples_at = -1 if dim_first else -2
    samples = mean.unsqueeze(samples_at) + std.unsqueeze(samples_at) * z
    if bounds is not None:
        low, high = (
            x.to(samples).unsqueeze(samples_at) if isinstance(x, Tensor) else samples.new_tensor(x)
            for x in bounds
        )
        samples = samples.clamp(low, high)
    return samples


def _seed(seed: Any, mean: Tensor, generator: torch.Generator | None) -> tuple[int, Tensor | None]:
    """Returns the seed's 64 bits as the operator takes them, or a tensor of seeds."""
    if seed is not None and not isinstance(seed, Tensor):
        seed = as_int("seed", seed)
    check_seed(mean, seed, generator)
    if seed is None:  # drawn where it is used: nothing is copied between host and device, nothing waits
        seed = torch.randint(
            0, _SEEDS, mean.shape[:-1], dtype=torch.int64, device=mean.device, generator=generator
        )
    if isinstance(seed, Tensor):
        return 0, seed
    return signed64(seed), None


def _generation(generation: Any, mean: Tensor) -> tuple[int, Tensor | None]:
    """Returns a number and None, or 0 and a tensor."""
    if not isinstance(generation, Tensor):
        generation = as_int("generation", generation)
    check_generation(mean, generation)
    return (0, generation) if isinstance(generation, Tensor) else (generation, None)


def _standard(mean: Tensor) -> tuple[Tensor, Tensor]:
    """Returns mean and standard deviation of the noise itself."""
    zeros = torch.zeros(mean.shape, dtype=mean.dtype, device=mean.device)
    return zeros, zeros + 1


_SEEDS = 2**63 - 1  # drawn ones are below
_UNSEEDED = int.from_bytes(b"unseeded", "big")  # keeps what torch's generator gives apart from given seeds


def _register() -> None:
    global _seeded, _rows
    register()
    _seeded = torch.ops.cem_tetris.sample_normal_seeded.default._op
    _rows = torch.ops.cem_tetris.sample_normal_rows.default._op


_LIBRARY = Library("normal", _register)
_seeded: Any = None  # the operators of plain calls, once they are loaded
_rows: Any = None
_drawing = threading.Lock()
