"""Samples ``mean + std * z`` with z ~ N(0, 1) made inside the kernel: function, gradients, reference.

z is a pure function of (seed, generation, sample, dimension), so it is nowhere stored: the backward pass
makes it again. stream.h, tile.h and box_muller.h say how: Philox4x32-10 and the Box-Muller transform.
"""

from __future__ import annotations

import numbers
import operator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from kernels.library import Library, is_transformed

Bound = float | Tensor
_REAL: Any = numbers.Real  # NumPy's scalars among them

_DTYPES = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})
_DEVICES = ("cpu", "cuda", "meta")
_MAX_GENERATION = 2**38
_MAX_SAMPLES = 2**46


def sample_normal(
    mean: Tensor,
    std: Tensor,
    num_samples: int,
    *,
    seed: int | None = None,
    generation: int = 0,
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
    the same z, float64 another one. In float32, CPU and CUDA differ by no more than 4e-6 times
    ``|mean| + std * max(1, |z|)``. Without a seed, torch's generator gives one: torch.manual_seed,
    torch.get_rng_state and CUDA graphs govern it as they do torch.randn, and every call differs.

    Example:
        >>> x = sample_normal(torch.zeros(3), torch.ones(3), 1000, seed=1)
        >>> x.shape
        torch.Size([3, 1000])

    Args:
        mean: shape (d,); float64, float32, float16 or bfloat16; CPU or CUDA.
        std: like mean, of the same dtype and device.
        num_samples: N, 0 or more.
        seed: 0 <= seed < 2**64.
        generation: which of the independent sets of samples of a seed; 0 <= generation < 2**38.
        generator: what gives the seed where ``seed`` is None, of mean's device; torch's default one if None.
        shared_noise: one z a sample, that of dimension 0, for all dimensions. All samples then lie on a line.
        antithetic: samples 2 k and 2 k + 1 have z and -z; z is what it would be without.
        bounds: (low, high), numbers or tensors (d,): each sample is clamped to them, and has gradient 0 where
            it was. They themselves get no gradient.
        dim_first: (d, N) if True, else (N, d).
        dtype: of the result, mean's if None. float16 and bfloat16 are computed in float32 and rounded.

    Returns:
        A new contiguous tensor.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong shape, device or value.
        kernels.BuildError: the operator has to be built, and cannot be.
    """
    try:
        plain = (
            type(seed) is type(num_samples) is type(generation) is int
            and bounds is None
            and dtype is None
            and generator is None
            and not (shared_noise or antithetic or torch.compiler.is_compiling() or is_transformed())
            and not ((mean.requires_grad or std.requires_grad) and torch.is_grad_enabled())
        )
    except AttributeError:  # not tensors
        plain = False
    if plain:
        assert seed is not None
        return _sample_plain(mean, std, num_samples, seed, generation, dim_first)
    _check_types(mean, std, generator, dtype)
    num_samples, generation = _as_int("num_samples", num_samples), _as_int("generation", generation)
    seed = None if seed is None else _as_int("seed", seed)
    dtype = dtype or mean.dtype
    _check(mean, std, num_samples, seed, generation, generator, dtype)
    low, high = _check_bounds(bounds, mean, dtype) if bounds is not None else (None, None)
    _LIBRARY.ensure(mean)
    number = 0 if seed is None else _signed(seed)
    seed_tensor = _draw_seed(mean.device, generator) if seed is None else None
    noise = (num_samples, number, seed_tensor, generation, shared_noise, antithetic)
    operators = torch.ops.cem_tetris
    if is_transformed():
        with forward_ad._set_fwd_grad_enabled(False), torch.no_grad():
            z = operators.sample_normal_no_grad.default(
                *_standard(mean), *noise, None, None, dim_first, _compute_type(dtype)
            )
        return sample_normal_reference(mean, std, z, bounds=bounds, dim_first=dim_first).to(dtype)
    recorded = (mean.requires_grad or std.requires_grad) and torch.is_grad_enabled()
    sample = operators.sample_normal if recorded else operators.sample_normal_no_grad
    try:
        result: Tensor = sample.default(mean, std, *noise, low, high, dim_first, dtype)
        return result
    except RuntimeError:
        _allocate(mean, num_samples, dtype)
        raise


def _sample_plain(
    mean: Tensor, std: Tensor, num_samples: int, seed: int, generation: int, dim_first: bool
) -> Tensor:
    """The shortest way for the commonest call: the operator checks, and only where it refuses Python does."""
    try:
        _LIBRARY.ensure(mean)
        if not 0 <= seed < 1 << 63:
            _check(mean, std, num_samples, seed, generation, None, mean.dtype)
            seed = _signed(seed)
        result: Tensor = torch.ops.cem_tetris.sample_normal_seeded.default(
            mean, std, num_samples, seed, generation, dim_first
        )
        return result
    except (RuntimeError, TypeError, AttributeError):
        _check_types(mean, std, None, None)
        _check(mean, std, num_samples, seed, generation, None, mean.dtype)
        _allocate(mean, num_samples, mean.dtype)
        raise


def sample_normal_reference(
    mean: Tensor, std: Tensor, z: Tensor, *, bounds: tuple[Bound, Bound] | None = None, dim_first: bool = True
) -> Tensor:
    """Returns what ``sample_normal`` makes of noise that is given, in plain PyTorch; torch differentiates it.

    Args:
        mean: shape (d,).
        std: shape (d,).
        z: the noise, shape (d, N) if ``dim_first``, else (N, d).
        bounds: as in ``sample_normal``.
        dim_first: which of the two shapes.
    """
    place = (slice(None), None) if dim_first else (None, slice(None))
    samples = mean[place] + std[place] * z
    if bounds is not None:
        low, high = (x.to(samples)[place] if isinstance(x, Tensor) else samples.new_tensor(x) for x in bounds)
        samples = samples.clamp(low, high)
    return samples


def _signed(seed: int) -> int:
    """Returns the 64 bits of a seed as the operator takes them."""
    return seed if seed < 1 << 63 else seed - (1 << 64)


def _compute_type(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype is torch.float64 else torch.float32


def _standard(mean: Tensor) -> tuple[Tensor, Tensor]:
    """Returns mean and standard deviation of the noise itself."""
    zeros = torch.zeros(mean.shape, dtype=mean.dtype, device=mean.device)
    return zeros, zeros + 1


def _allocate(mean: Tensor, num_samples: int, dtype: torch.dtype) -> None:
    """Allocates the result as torch does: where there is no memory, it says so better than the operator."""
    mean.new_empty((mean.shape[0], num_samples), dtype=dtype)


def _as_int(name: str, value: Any) -> int:
    """Returns an integer of any kind as an int; one that torch.compile traces stays as it is."""
    if type(value) is int:
        return value
    if isinstance(value, torch.SymInt):
        return value  # type: ignore[return-value]
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"expected {name} to be an int, got {type(value).__name__}")
    return operator.index(value)


def _check_types(mean: Any, std: Any, generator: Any, dtype: Any) -> None:
    for name, value in (("mean", mean), ("std", std)):
        if not isinstance(value, Tensor):
            raise TypeError(f"expected {name} to be a tensor, got {type(value).__name__}")
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"expected generator to be a torch.Generator or None, got {type(generator).__name__}")
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"expected dtype to be a torch.dtype or None, got {dtype!r}")


def _check(
    mean: Tensor,
    std: Tensor,
    num_samples: int,
    seed: int | None,
    generation: int,
    generator: torch.Generator | None,
    dtype: torch.dtype,
) -> None:
    """One condition for what is right, since every call pays for it; then which one it was."""
    device = mean.device
    if (
        mean.dim() == std.dim() == 1
        and mean.shape[0] == std.shape[0]
        and mean.dtype is std.dtype
        and mean.dtype in _DTYPES
        and dtype in _DTYPES
        and device == std.device
        and device.type in _DEVICES
        and 0 <= num_samples < _MAX_SAMPLES
        and 0 <= generation < _MAX_GENERATION
        and (seed is None or (generator is None and 0 <= seed < 1 << 64))
        and (generator is None or generator.device.type == device.type)
    ):
        return
    if mean.dim() != 1 or mean.shape != std.shape:
        raise ValueError(
            f"expected mean and std of one shape (d,), got {tuple(mean.shape)} and {tuple(std.shape)}"
        )
    if mean.dtype not in _DTYPES or mean.dtype is not std.dtype:
        raise TypeError(
            f"expected mean and std of one floating type (float64, float32, float16, bfloat16), "
            f"got {mean.dtype} and {std.dtype}"
        )
    if dtype not in _DTYPES:
        raise TypeError(f"expected a dtype out of float64, float32, float16 and bfloat16, got {dtype}")
    if mean.device != std.device or mean.device.type not in _DEVICES:
        raise ValueError(
            f"expected mean and std on one device, CPU or CUDA, got {mean.device} and {std.device}"
        )
    if not 0 <= num_samples < _MAX_SAMPLES:
        raise ValueError(f"expected 0 <= num_samples < 2**46, got {num_samples}")
    if not 0 <= generation < _MAX_GENERATION:
        raise ValueError(f"expected 0 <= generation < 2**38, got {generation}")
    if seed is not None and generator is not None:
        raise ValueError("expected a seed or a generator, got both")
    if generator is not None:
        raise ValueError(f"expected a generator on {mean.device}, got one on {generator.device}")
    raise ValueError(f"expected 0 <= seed < 2**64, got {seed}")


def _check_bounds(bounds: tuple[Bound, Bound], mean: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Returns both as vectors of the type that is computed in."""
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise TypeError(f"expected bounds to be (low, high), got {bounds!r}")
    low, high = (_bound(bound, mean, _compute_type(dtype)) for bound in bounds)
    if all(isinstance(bound, _REAL) for bound in bounds) and not bounds[0] <= bounds[1]:
        raise ValueError(f"expected bounds with low <= high, got {bounds}")
    return low, high


def _bound(bound: Bound, mean: Tensor, dtype: torch.dtype) -> Tensor:
    if isinstance(bound, Tensor):
        if bound.is_complex():
            raise TypeError(f"expected a bound of real numbers, got {bound.dtype}")
        if bound.shape != mean.shape or bound.device != mean.device:
            raise ValueError(
                f"expected a bound of shape {tuple(mean.shape)} on {mean.device}, "
                f"got {tuple(bound.shape)} on {bound.device}"
            )
        return bound.detach().to(dtype)
    if isinstance(bound, _REAL):
        return torch.full_like(mean, float(bound), dtype=dtype, requires_grad=False)
    raise TypeError(f"expected a bound to be a number or a tensor, got {type(bound).__name__}")


def _draw_seed(device: torch.device, generator: torch.Generator | None) -> Tensor:
    """Draws a seed where it is used: nothing is copied between host and device, nothing waits."""
    return torch.randint(0, 2**63 - 1, (1,), dtype=torch.int64, device=device, generator=generator)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    mean, std, _, seed, seed_tensor, generation, shared_noise, antithetic, low, high, dim_first, dtype = (
        inputs
    )
    ctx.noise = (seed, generation, shared_noise, antithetic, dim_first)
    ctx.dtype = dtype
    # Without bounds the gradients depend on nothing but the noise.
    bounded = low is not None or high is not None
    ctx.save_for_backward(*((mean, std) if bounded else (None, None)), seed_tensor, low, high)
    ctx.mean_dtype = mean.dtype


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    mean, std, seed_tensor, low, high = ctx.saved_tensors
    seed, generation, shared_noise, antithetic, dim_first = ctx.noise
    operators = torch.ops.cem_tetris
    if mean is not None:
        with torch.no_grad():  # the samples before they were clamped, in the type that was computed in
            samples = operators.sample_normal_no_grad.default(
                mean,
                std,
                grad.shape[1] if dim_first else grad.shape[0],
                seed,
                seed_tensor,
                generation,
                shared_noise,
                antithetic,
                None,
                None,
                dim_first,
                _compute_type(ctx.dtype),
            )
            inside = torch.ones_like(samples, dtype=torch.bool)
            for bound, compare in ((low, torch.ge), (high, torch.le)):
                if bound is not None:
                    inside &= compare(samples, bound[:, None] if dim_first else bound)
        grad = torch.where(inside, grad, 0)
    mean_grad, std_grad = operators.sample_normal_backward.default(
        grad, seed, seed_tensor, generation, shared_noise, antithetic, dim_first
    )
    return (mean_grad.to(ctx.mean_dtype), std_grad.to(ctx.mean_dtype), *(None,) * 10)


def _save_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    grad, *noise = inputs
    ctx.noise = noise[:1] + noise[2:]
    ctx.save_for_backward(noise[1])
    ctx.num_samples = grad.shape[1] if ctx.noise[-1] else grad.shape[0]
    ctx.dtype = grad.dtype


def _second_gradients(ctx: Any, mean_tangent: Tensor, std_tangent: Tensor) -> tuple[Tensor | None, ...]:
    """The backward pass is linear in the gradient, and its transpose is the sampler with the same noise."""
    seed, generation, shared_noise, antithetic, dim_first = ctx.noise
    result = torch.ops.cem_tetris.sample_normal.default(
        mean_tangent,
        std_tangent,
        ctx.num_samples,
        seed,
        ctx.saved_tensors[0],
        generation,
        shared_noise,
        antithetic,
        None,
        None,
        dim_first,
        ctx.dtype,
    )
    return (result, *(None,) * 6)


def _fake(
    mean: Tensor,
    std: Tensor,
    num_samples: int,
    seed: int,
    seed_tensor: Tensor | None,
    generation: int,
    shared_noise: bool,
    antithetic: bool,
    low: Tensor | None,
    high: Tensor | None,
    dim_first: bool,
    dtype: torch.dtype,
) -> Tensor:
    shape = (mean.shape[0], num_samples) if dim_first else (num_samples, mean.shape[0])
    return mean.new_empty(shape, dtype=dtype)


def _fake_seeded(
    mean: Tensor, std: Tensor, num_samples: int, seed: int, generation: int, dim_first: bool
) -> Tensor:
    if mean.device != std.device:  # the meta device alone comes here unchecked
        raise RuntimeError(f"expected mean and std on one device, got {mean.device} and {std.device}")
    return mean.new_empty((mean.shape[0], num_samples) if dim_first else (num_samples, mean.shape[0]))


def _fake_backward(
    grad: Tensor,
    seed: int,
    seed_tensor: Tensor | None,
    generation: int,
    shared_noise: bool,
    antithetic: bool,
    dim_first: bool,
) -> tuple[Tensor, Tensor]:
    dimensions, dtype = grad.shape[0 if dim_first else 1], _compute_type(grad.dtype)
    return grad.new_empty(dimensions, dtype=dtype), grad.new_empty(dimensions, dtype=dtype)


def _register() -> None:
    torch.library.register_fake("cem_tetris::sample_normal", _fake)
    torch.library.register_fake("cem_tetris::sample_normal_no_grad", _fake)
    torch.library.register_fake("cem_tetris::sample_normal_seeded", _fake_seeded)
    torch.library.register_fake("cem_tetris::sample_normal_backward", _fake_backward)
    torch.library.register_autograd("cem_tetris::sample_normal", _gradients, setup_context=_save)
    torch.library.register_autograd(
        "cem_tetris::sample_normal_backward", _second_gradients, setup_context=_save_backward
    )


_LIBRARY = Library("normal", _register)
