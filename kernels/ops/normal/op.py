"""Sample ``mean + std * z`` with z ~ N(0, 1) made inside the kernel: function, gradients, reference.

z is a pure function of (seed, generation, sample, dimension), so it is not stored: the backward pass draws it
again. stream.h, call.h and box_muller.h say how: Philox4x32-10 and the Box-Muller transform.
"""

from __future__ import annotations

import numbers
import operator
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from kernels.ops.library import Gradient, Library, goes_long_way, is_transformed, refused
from kernels.ops.philox import signed64

Bound = float | Tensor
"""One number, or one a dimension."""

_REAL: Any = numbers.Real  # NumPy's scalars among them
_SEEDS = 2**63 - 1  # drawn ones are below
_UNSEEDED = int.from_bytes(b"unseeded", "big")  # keeps what torch's generator gives apart from given seeds


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
    """Draw ``mean[j] + std[j] * z[j, i]``, differentiable in mean and std, twice.

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
        mean: shape (..., d); float64, float32, float16 or bfloat16; CPU or CUDA. What is not contiguous is
            copied; ``sample_normal_rows`` reads rows of a wider tensor where they are.
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
    try:
        if not (
            antithetic
            or dtype is not None
            or bounds is not None
            or goes_long_way()
            or ((mean.requires_grad or std.requires_grad) and torch.is_grad_enabled())
        ):  # the commonest calls, by an operator of few arguments
            if seed is None:
                if type(generation) is int and generation == 0:
                    samples = _sample_unseeded(mean, std, num_samples, generator, dim_first, shared_noise)
                    if samples is not None:
                        return samples
            elif generator is None and type(seed) is type(generation) is int:
                return _direct["sample_normal_seeded"](
                    mean, std, num_samples, seed, generation, dim_first, shared_noise
                )
    except (AttributeError, KeyError, RuntimeError, TypeError):
        pass  # nothing was drawn; it is not loaded yet, or the long way takes it, or says what is wrong
    try:
        _LIBRARY.ensure(mean)
        if dtype is None:  # the types differ under autocast alone, or are refused
            dtype = mean.dtype if mean.dtype == std.dtype else torch.float32
        low, high = _bounds(bounds, mean, _compute_type(dtype))
        noise = (*_noise(seed, generation, mean, generator), shared_noise, antithetic, dim_first)
        if is_transformed():
            with forward_ad._set_fwd_grad_enabled(False), torch.no_grad():
                z = _draw_noise(mean.shape, mean.device, num_samples, *noise, dtype)
            limits = None if low is None or high is None else (low, high)
            return sample_normal_reference(mean, std, z, bounds=limits, dim_first=dim_first).to(dtype)
        recorded = (mean.requires_grad or std.requires_grad) and torch.is_grad_enabled()
        operators = torch.ops.cem_tetris
        sample = operators.sample_normal if recorded else operators.sample_normal_no_grad
        result: Tensor = sample.default(mean, std, num_samples, *noise, dtype, low, high)
        return result
    except (AttributeError, RuntimeError) as error:
        if (refusal := refused(error)) is error:  # where there is no memory, torch says so better
            mean.new_empty((*mean.shape, num_samples), dtype=dtype)
        raise refusal from None


def sample_normal_rows(
    rows: Tensor,
    num_samples: int,
    *,
    seed: Tensor,
    generation: Tensor,
    bounds: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Draw as ``sample_normal`` from the first two of some rows, mean and std; no views of them are made.

    Errors are those of ``sample_normal``.

    Args:
        rows: shape (..., R, d), R >= 2; float64, float32, float16 or bfloat16; CPU or CUDA.
        num_samples: N, 0 or more.
        seed: shape (...), int64.
        generation: shape (), int64.
        bounds: (low, high), of shape (d,) or (..., d): each sample is clamped to them.

    Returns:
        A new contiguous tensor, shape (..., N, d), dtype of ``rows``.
    """
    try:
        if not (goes_long_way() or (rows.requires_grad and torch.is_grad_enabled())):
            return _direct["sample_normal_rows"](rows, num_samples, seed, generation, *(bounds or ()))
    except (AttributeError, KeyError, RuntimeError, TypeError):
        pass  # not loaded yet, or bounds of another type: sample_normal takes more, and says what is wrong
    if rows.dim() < 2 or rows.shape[-2] < 2:
        raise ValueError(f"expected rows of shape (..., R, d), R >= 2, got {tuple(rows.shape)}")
    mean, std = rows[..., 0, :], rows[..., 1, :]
    return sample_normal(
        mean, std, num_samples, seed=seed, generation=generation, bounds=bounds, dim_first=False
    )


def _sample_unseeded(
    mean: Tensor, std: Tensor, num_samples: int, generator: torch.Generator | None, *layout: bool
) -> Tensor | None:
    """Return samples by a seed from torch's generator, or None where the general operator has to draw them.

    ``layout`` is dim_first and shared_noise.
    """
    is_seen = torch._C._len_torch_dispatch_stack() > 0 or torch._C._get_tracing_state() is not None
    if is_seen or mean.dim() != 1:
        return None  # a mode, or torch.jit.trace, has to see the drawing; problems have seeds of their own
    on_cuda = mean.is_cuda
    if on_cuda not in _ready:
        _LIBRARY.ensure(mean)
    if not on_cuda:
        drawn = torch.randint(_SEEDS, (), device="cpu", generator=generator).item()
        return _direct["sample_normal_seeded"](mean, std, num_samples, drawn, 0, *layout)
    # On CUDA the seed is the generator's, and the generation its offset, which moves on as it does for
    # torch's kernels: to draw a number there would take a kernel more.
    if generator is None:
        generator = torch.cuda.default_generators[mean.device.index]
    with _drawing:
        try:
            offset = generator.get_offset()
        except RuntimeError:
            return None  # refused while a CUDA graph is captured
        seed = (generator.initial_seed() ^ _UNSEEDED) & _SEEDS
        samples = _direct["sample_normal_seeded"](mean, std, num_samples, seed, offset // 4, *layout)
        generator.set_offset(offset + 4)  # torch asks for a multiple of 4
    return samples


def sample_normal_reference(
    mean: Tensor, std: Tensor, z: Tensor, *, bounds: tuple[Bound, Bound] | None = None, dim_first: bool = True
) -> Tensor:
    """Return what ``sample_normal`` makes of noise that is given, in plain PyTorch; torch differentiates it.

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


def _noise(
    seed: Any, generation: Any, mean: Tensor, generator: torch.Generator | None
) -> tuple[int, int, Tensor | None, Tensor | None]:
    """Return seed and generation as the operator takes them: numbers, or tensors in their place."""
    if seed is not None and generator is not None:
        raise ValueError("expected a seed or a generator, got both")
    if seed is None:  # drawn where it is used: nothing is copied between host and device, nothing waits
        seed = torch.randint(_SEEDS, mean.shape[:-1], device=mean.device, generator=generator)
    number, seeds = (0, seed) if isinstance(seed, Tensor) else (_as_int(seed), None)
    if not 0 <= number < 1 << 64:
        raise ValueError(f"expected 0 <= seed < 2**64, got {seed}")
    at, generations = (0, generation) if isinstance(generation, Tensor) else (_as_int(generation), None)
    return signed64(number), at, seeds, generations


def _as_int(value: Any) -> int:
    """Return an integer of any kind as an int; one that torch.compile traces stays as it is."""
    is_int = type(value) is int or isinstance(value, torch.SymInt)
    return value if is_int else operator.index(value)


def _bounds(
    bounds: tuple[Bound, Bound] | None, mean: Tensor, dtype: torch.dtype
) -> tuple[Tensor | None, Tensor | None]:
    """Return both bounds as tensors of a type."""
    if bounds is None:
        return None, None
    low, high = bounds
    if isinstance(low, _REAL) and isinstance(high, _REAL) and not low <= high:
        raise ValueError(f"expected bounds with low <= high, got {bounds}")

    def as_tensor(bound: Bound) -> Tensor:
        if isinstance(bound, Tensor):
            return bound.detach().to(dtype)
        return mean.new_full(mean.shape[-1:], float(bound), dtype=dtype)

    return as_tensor(low), as_tensor(high)


def _compute_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type that samples of a type are computed in."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def _draw_noise(shape: tuple[int, ...], device: torch.device, num_samples: int, *noise: Any) -> Any:
    """Return z itself for a mean of a shape; ``noise`` as the operator takes it, then the samples' type."""
    ones = torch.ones(shape, dtype=_compute_type(noise[-1]), device=device)
    draw = torch.ops.cem_tetris.sample_normal_no_grad.default
    return draw(torch.zeros_like(ones), ones, num_samples, *noise[:-1], ones.dtype, None, None)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    mean, std, ctx.num_samples, seed, generation, seeds, generations, *flags, dtype, low, high = inputs
    ctx.numbers, ctx.flags = (seed, generation), (*flags, dtype)
    # Without bounds the gradients depend on nothing but the noise.
    ctx.save_for_backward(*((None, None) if low is None else (mean, std)), seeds, generations, low, high)
    ctx.mean_dtype = mean.dtype


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Return the sums of grad and of grad * z over the samples."""
    mean, std, *seeds, low, high = ctx.saved_tensors
    dim_first = ctx.flags[2]
    samples_at = -1 if dim_first else -2
    shape = grad.shape[:-1] if dim_first else (*grad.shape[:-2], grad.shape[-1])
    z = _draw_noise(shape, grad.device, ctx.num_samples, *ctx.numbers, *seeds, *ctx.flags)
    grad = grad.to(z.dtype)
    if mean is not None:
        with torch.no_grad():
            samples = mean.unsqueeze(samples_at) + std.unsqueeze(samples_at) * z
            inside = (samples >= low.unsqueeze(samples_at)) & (samples <= high.unsqueeze(samples_at))
        grad = torch.where(inside, grad, 0)
    gradients = grad.sum(samples_at), (grad * z).sum(samples_at)
    return (*(each.to(ctx.mean_dtype) for each in gradients), *(None,) * 11)


def _samples(mean: Tensor, count: int, dim_first: bool, dtype: torch.dtype | None = None) -> Tensor:
    """Return unset samples."""
    *batch, dimensions = mean.shape
    return mean.new_empty((*batch, *((dimensions, count) if dim_first else (count, dimensions))), dtype=dtype)


_FAKES: dict[str, Callable[..., Any]] = dict.fromkeys(
    ("sample_normal", "sample_normal_no_grad"),
    lambda mean, std, count, *rest: _samples(mean, count, *rest[-4:-2]),
)
_FAKES |= {
    "sample_normal_seeded": lambda mean, std, count, *rest: _samples(mean, count, *rest[2:3] or [True]),
    "sample_normal_rows": lambda rows, count, *_: _samples(rows[..., 0, :], count, False),
}
_LIBRARY = Library("normal", _FAKES, {"sample_normal": Gradient(_gradients, _save)})
_ready = _LIBRARY.ready
_direct: dict[str, Callable[..., Tensor]] = _LIBRARY.direct
_drawing = threading.Lock()
