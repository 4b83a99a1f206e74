"""Samples ``mean + std * z``, and draws the normal noise z inside the kernel.

z is a pure function of (seed, generation, sample, dimension), computed with Philox4x32-10 and
the Box-Muller transform (stream.h, call.h, box_muller.h). So z is not stored: the backward pass
draws it again with `_draw_noise`. mean + std * z is computed in cpu.h, in sample.cuh and, for
small results on a GPU, in small.cuh. Tests compare z with the noise of `kernels.ops.cases`.
"""

import numbers
import operator
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from kernels.ops.library import (
    Gradient,
    Library,
    is_traced,
    is_transformed,
    needs_dispatch,
    public_error,
)
from kernels.ops.philox import signed64

Bound = float | Tensor
"""One number, or one for each dimension."""

_REAL: Any = numbers.Real  # includes NumPy's scalars
_LARGEST_SEED = 2**63 - 1  # random seeds are smaller
# Makes the numbers of a generator's seed differ from those of an equal argument ``seed``.
_UNSEEDED = int.from_bytes(b"unseeded", "big")


def sample_normal(  # noqa: PLR0913 - an option for each property of the samples
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
    """Draw ``mean[j] + std[j] * z[j, i]``, twice differentiable in mean and std.

    With a seed, ``z[j, i]`` is a pure function of (seed, generation, i, j): it depends neither
    on ``num_samples``, nor on the number of dimensions, nor on the layout. float32, float16 and
    bfloat16 have the same z; float64 has another one. Without a seed, every call draws one from
    torch's generator, which torch.manual_seed, torch.get_rng_state and CUDA graphs control as
    they do for torch.randn.

    The bits of the samples are the same on every CPU with any number of threads, and on every
    GPU. In float64, CPU and CUDA also agree. In float32 they differ by at most 4e-6 times
    ``|mean| + std * max(1, |z|)``.

    Leading dimensions are a batch of problems, each with its own seed: problem p has the
    numbers of a call with ``mean[p]``, ``std[p]`` and ``seed[p]``. A generation in the device's
    memory can change between replays of a CUDA graph.

    Examples:
        >>> x = sample_normal(torch.zeros(3), torch.ones(3), 1000, seed=1)
        >>> x.shape
        torch.Size([3, 1000])

    Args:
        mean: shape (..., d); float64, float32, float16 or bfloat16; CPU or CUDA. A tensor that
            is not contiguous is copied; ``sample_normal_rows`` reads rows of a larger tensor
            without a copy.
        std: has the shape, dtype and device of mean.
        num_samples: N, 0 or more.
        seed: 0 <= seed < 2**64, for mean of shape (d,); or an int64 tensor of the batch shape
            on mean's device, whose 64 bits are read as an unsigned number.
        generation: selects one of the independent sets of samples of a seed; 0 <= generation <
            2**38; or an int64 tensor of shape () or of the batch shape on mean's device, taken
            modulo 2**38.
        generator: the generator on mean's device that draws the seeds if ``seed`` is None; None
            is torch's default one.
        shared_noise: use the z of dimension 0 for all dimensions. All samples then lie on a
            line.
        antithetic: samples 2 k and 2 k + 1 have z and -z; the z of sample 2 k does not change.
        bounds: (low, high), numbers or tensors of shape (d,) or (..., d). Samples are clamped
            to them, and clamped samples have gradient 0. The bounds themselves have no
            gradient.
        dim_first: the shape of the result is (..., d, N) if True, else (..., N, d).
        dtype: the dtype of the result; None is mean's. float16 and bfloat16 are computed in
            float32 and rounded.

    Returns:
        A new contiguous tensor.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong shape, device or value.
        kernels.BuildError: the operator is not built yet, and cannot be built.
    """
    try:
        if not (
            antithetic
            or dtype is not None
            or bounds is not None
            or needs_dispatch()
            or ((mean.requires_grad or std.requires_grad) and torch.is_grad_enabled())
        ):  # the most common calls use an operator with few arguments, which is faster
            if seed is None:
                if type(generation) is int and generation == 0:
                    samples = _sample_unseeded(
                        mean, std, num_samples, generator, dim_first, shared_noise
                    )
                    if samples is not None:
                        return samples
            elif generator is None and type(seed) is type(generation) is int:
                return _direct["sample_normal_seeded"](
                    mean, std, num_samples, seed, generation, dim_first, shared_noise
                )
    except (AttributeError, KeyError, RuntimeError, TypeError):
        # Nothing was drawn. The general path below loads the operator, accepts the arguments or
        # raises the error.
        pass
    try:
        _LIBRARY.ensure(mean)
        if dtype is None:  # the types may only differ under autocast
            dtype = mean.dtype if mean.dtype == std.dtype else torch.float32
        low, high = _make_bounds(bounds, mean, _compute_type(dtype))
        seeds = _resolve_seeds(seed, generation, mean, generator)
        noise = (*seeds, shared_noise, antithetic, dim_first)
        arguments = (mean, std, num_samples, *noise, dtype, low, high)
        if is_transformed():
            with forward_ad._set_fwd_grad_enabled(False), torch.no_grad():
                z = _draw_noise(mean.shape, mean.device, num_samples, *noise, dtype)
            limits = None if low is None or high is None else (low, high)
            return sample_normal_reference(mean, std, z, bounds=limits, dim_first=dim_first).to(
                dtype
            )
        operators = torch.ops.cem_tetris
        wants_gradient = (mean.requires_grad or std.requires_grad) and torch.is_grad_enabled()
        has_derivative = wants_gradient or is_traced()
        sample = operators.sample_normal if has_derivative else operators.sample_normal_no_grad
        result: Tensor = sample.default(*arguments)
        return result
    except (AttributeError, RuntimeError) as error:
        better = public_error(error)
        if better is error:  # if memory is short, torch raises a better message
            mean.new_empty((*mean.shape, num_samples), dtype=dtype)
        raise better from None


def sample_normal_rows(
    rows: Tensor,
    num_samples: int,
    *,
    seed: Tensor,
    generation: Tensor,
    bounds: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Draw ``mean + std * z`` from a tensor whose first two rows are mean and std.

    Results and errors are those of ``sample_normal``. This function is faster, because it makes
    no views of the rows.

    Args:
        rows: shape (..., R, d), R >= 2; float64, float32, float16 or bfloat16; CPU or CUDA. Row
            0 is the mean, and row 1 the standard deviation. Other rows are not read.
        num_samples: N, 0 or more.
        seed: shape (...), int64.
        generation: shape () or (...), int64.
        bounds: (low, high), of shape (d,) or (..., d). The samples are clamped to them.

    Returns:
        A new contiguous tensor, shape (..., N, d), dtype of ``rows``.
    """
    # The fast path calls the loaded operator itself, without torch.ops. If the operator is not
    # loaded yet, or does not take these arguments, the general path below loads it, accepts
    # more types, or raises the error.
    try:
        wants_gradient = rows.requires_grad and torch.is_grad_enabled()
        if not wants_gradient and not needs_dispatch():
            limits = bounds or ()
            return _direct["sample_normal_rows"](rows, num_samples, seed, generation, *limits)
    except (AttributeError, KeyError, RuntimeError, TypeError):
        pass
    try:
        mean = rows[..., 0, :]
        std = rows[..., 1, :]
    except IndexError:
        shape = tuple(rows.shape)
        raise ValueError(f"expected rows of shape (..., R, d), R >= 2, got {shape}") from None
    return sample_normal(
        mean, std, num_samples, seed=seed, generation=generation, bounds=bounds, dim_first=False
    )


def _sample_unseeded(
    mean: Tensor,
    std: Tensor,
    num_samples: int,
    generator: torch.Generator | None,
    dim_first: bool,
    shared_noise: bool,
) -> Tensor | None:
    """Draw samples with a seed from the generator, or return None if this is not possible.

    If ``generator`` is None, torch's default generator is used. If this function returns None,
    the caller uses the general operator. This is the case for a batch of problems, and during
    the capture of a CUDA graph.
    """
    if mean.dim() != 1:
        return None

    # `_ready` contains the values of `is_cuda` for which the operators are loaded.
    if mean.is_cuda not in _ready:
        _LIBRARY.ensure(mean)
    sample = _direct["sample_normal_seeded"]
    if not mean.is_cuda:
        seed = torch.randint(_LARGEST_SEED, (), device="cpu", generator=generator).item()
        generation = 0
        return sample(mean, std, num_samples, seed, generation, dim_first, shared_noise)

    # Drawing a seed on a GPU would need one more kernel. So the seed of the samples is the
    # generator's own seed, and their generation is its offset, in steps of 4. As in torch's
    # kernels, every draw advances the offset.
    if generator is None:
        generator = torch.cuda.default_generators[mean.device.index]
    with _generator_lock:
        try:
            offset = generator.get_offset()
        except RuntimeError:
            return None  # During the capture of a CUDA graph a generator has no offset.
        # Without this XOR, the numbers would be those of a call with this seed as an argument.
        seed = (generator.initial_seed() ^ _UNSEEDED) & _LARGEST_SEED
        generation = offset // 4
        samples = sample(mean, std, num_samples, seed, generation, dim_first, shared_noise)
        generator.set_offset(offset + 4)  # torch requires a multiple of 4.
    return samples


def sample_normal_reference(
    mean: Tensor,
    std: Tensor,
    z: Tensor,
    *,
    bounds: tuple[Bound, Bound] | None = None,
    dim_first: bool = True,
) -> Tensor:
    """Return ``mean + std * z``, as ``sample_normal`` does, in plain PyTorch.

    The result is differentiable.

    Args:
        mean: shape (..., d).
        std: shape (..., d).
        z: the noise, shape (..., d, N) if ``dim_first``, else (..., N, d).
        bounds: (low, high), numbers or tensors of shape (d,) or (..., d). The samples are
            clamped to them.
        dim_first: whether z and the result have the shape (..., d, N).
    """
    sample_dim = -1 if dim_first else -2
    samples = mean.unsqueeze(sample_dim) + std.unsqueeze(sample_dim) * z
    if bounds is not None:

        def as_limit(bound: Bound) -> Tensor:
            """Return a bound as a tensor that broadcasts against the samples."""
            if isinstance(bound, Tensor):
                return bound.to(samples).unsqueeze(sample_dim)
            return samples.new_tensor(bound)

        low, high = bounds
        samples = samples.clamp(as_limit(low), as_limit(high))
    return samples


def _resolve_seeds(
    seed: Any, generation: Any, mean: Tensor, generator: torch.Generator | None
) -> tuple[int, int, Tensor | None, Tensor | None]:
    """Return (seed, generation, seed_tensor, generation_tensor), as the operator takes them.

    The operator takes both a number and a tensor for the seed, and uses the tensor unless it is
    None. The same holds for the generation. If ``seed`` is None, the generator draws one seed
    for each problem of the batch.
    """
    if seed is not None and generator is not None:
        raise ValueError("expected a seed or a generator, got both")
    if seed is None:
        # Draw on the device of the samples: nothing is copied, and the CPU does not wait.
        seed = torch.randint(
            _LARGEST_SEED, mean.shape[:-1], device=mean.device, generator=generator
        )
    # Of a number and a tensor, one is given. Where a tensor is given, the number is 0.
    seed_number, seed_tensor = _as_number_and_tensor(seed)
    generation_number, generation_tensor = _as_number_and_tensor(generation)
    unsigned_seed = _as_int(seed_number)
    if not 0 <= unsigned_seed < 1 << 64:
        raise ValueError(f"expected 0 <= seed < 2**64, got {seed}")
    # The operator takes signed 64-bit integers.
    signed_seed = signed64(unsigned_seed)
    return signed_seed, _as_int(generation_number), seed_tensor, generation_tensor


def _as_number_and_tensor(value: Any) -> tuple[Any, Tensor | None]:
    """Return a number and None, or 0, which is not used, and a tensor."""
    return (0, value) if isinstance(value, Tensor) else (value, None)


def _as_int(value: Any) -> int:
    """Return an integer of any type as an int. A symbolic integer is returned unchanged."""
    is_int = type(value) is int or isinstance(value, torch.SymInt)
    return value if is_int else operator.index(value)


def _make_bounds(
    bounds: tuple[Bound, Bound] | None, mean: Tensor, dtype: torch.dtype
) -> tuple[Tensor | None, Tensor | None]:
    """Return (low, high) as tensors of a dtype, or (None, None) without bounds.

    A number becomes a tensor of shape (d,) on the mean's device, where (..., d) is the shape of
    the mean. A tensor keeps its shape and device.
    """
    if bounds is None:
        return None, None
    low, high = bounds
    # Comparisons with NaN are False, so `not low <= high` also rejects NaN.
    if isinstance(low, _REAL) and isinstance(high, _REAL) and not low <= high:
        raise ValueError(f"expected bounds with low <= high, got {bounds}")

    def as_tensor(bound: Bound) -> Tensor:
        if isinstance(bound, Tensor):
            return bound.detach().to(dtype)
        return mean.new_full(mean.shape[-1:], float(bound), dtype=dtype)

    return as_tensor(low), as_tensor(high)


def _compute_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which samples of a type are computed."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def _draw_noise(
    shape: tuple[int, ...], device: torch.device, num_samples: int, *noise: Any
) -> Any:
    """Return the noise z for a mean of the shape ``shape``.

    ``noise`` contains the arguments of the operator from the seed on, then the samples' type.
    """
    ones = torch.ones(shape, dtype=_compute_type(noise[-1]), device=device)
    draw = torch.ops.cem_tetris.sample_normal_no_grad.default
    return draw(torch.zeros_like(ones), ones, num_samples, *noise[:-1], ones.dtype, None, None)


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Save what the backward pass needs to draw the noise z again.

    ``inputs`` are the arguments of the operator ``sample_normal``. The operator takes both a
    number and a tensor for the seed, and uses the tensor unless it is None. The same holds for
    the generation.
    """
    (
        mean,
        std,
        num_samples,
        seed,
        generation,
        seed_tensor,
        generation_tensor,
        shared_noise,
        antithetic,
        dim_first,
        dtype,
        low,
        high,
    ) = inputs
    ctx.num_samples = num_samples
    ctx.dim_first = dim_first
    ctx.mean_dtype = mean.dtype
    ctx.seed_and_generation = seed, generation
    ctx.noise_options = shared_noise, antithetic, dim_first, dtype
    if low is None:
        # Without bounds the gradients depend on the noise alone. With bounds, mean and std are
        # needed to find out which samples were clamped.
        mean = None
        std = None
    ctx.save_for_backward(mean, std, seed_tensor, generation_tensor, low, high)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of the 13 arguments of the operator ``sample_normal``.

    The gradient of the mean is the sum of ``grad`` over the samples, and that of std is the sum
    of ``grad * z``. Samples that were clamped to their bounds are left out. The other arguments
    have no gradients.

    Args:
        ctx: the autograd context, in which `_save_for_backward` has saved the arguments.
        grad: the gradient of the samples, shape (..., d, N), or (..., N, d) if not dim_first.
    """
    sample_dim = -1 if ctx.dim_first else -2
    # The saved tensors are read once, because torch.utils.checkpoint allows no second time.
    mean, std, seed_tensor, generation_tensor, low, high = ctx.saved_tensors
    z = _draw_noise_again(ctx, grad, seed_tensor, generation_tensor)
    grad = grad.to(z.dtype)
    # mean was saved only if there are bounds.
    if mean is not None:
        with torch.no_grad():
            samples = mean.unsqueeze(sample_dim) + std.unsqueeze(sample_dim) * z
            is_above_low = samples >= low.unsqueeze(sample_dim)
            is_below_high = samples <= high.unsqueeze(sample_dim)
        grad = torch.where(is_above_low & is_below_high, grad, 0)

    d_mean = grad.sum(sample_dim).to(ctx.mean_dtype)
    d_std = (grad * z).sum(sample_dim).to(ctx.mean_dtype)
    no_gradients = (None,) * 11
    return (d_mean, d_std, *no_gradients)


def _draw_noise_again(
    ctx: Any, grad: Tensor, seed_tensor: Tensor | None, generation_tensor: Tensor | None
) -> Tensor:
    """Return the noise of the forward pass, whose samples have the gradient ``grad``.

    The gradient has the shape (..., d, N), or (..., N, d) if not ``ctx.dim_first``. The
    operator uses the two tensors in place of the numbers in ``ctx``, unless they are None.
    """
    *batch, rows, columns = grad.shape
    dimensions = rows if ctx.dim_first else columns
    seed, generation = ctx.seed_and_generation
    z: Tensor = _draw_noise(
        (*batch, dimensions),
        grad.device,
        ctx.num_samples,
        seed,
        generation,
        seed_tensor,
        generation_tensor,
        *ctx.noise_options,
    )
    return z


def _make_samples(
    mean: Tensor, count: int, dim_first: bool, dtype: torch.dtype | None = None
) -> Tensor:
    """Return uninitialised samples."""
    *batch, dimensions = mean.shape
    shape = (dimensions, count) if dim_first else (count, dimensions)
    return mean.new_empty((*batch, *shape), dtype=dtype)


_FAKES: dict[str, Callable[..., Any]] = dict.fromkeys(
    ("sample_normal", "sample_normal_no_grad"),
    lambda mean, std, count, *rest: _make_samples(mean, count, *rest[-4:-2]),
)
_FAKES |= {
    "sample_normal_seeded": lambda mean, std, count, *rest: _make_samples(
        mean, count, *rest[2:3] or [True]
    ),
    "sample_normal_rows": lambda rows, count, *_: _make_samples(rows[..., 0, :], count, False),
}
_LIBRARY = Library("normal", _FAKES, {"sample_normal": Gradient(_backward, _save_for_backward)})
_ready = _LIBRARY.ready
_direct: dict[str, Callable[..., Tensor]] = _LIBRARY.direct
_generator_lock = threading.Lock()
