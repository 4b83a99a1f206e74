"""The sampler's derivatives and its fake kernels.

A sample is mean + std * z, and z a function of the seed and the place: the gradients are the sums of grad and
of grad * z over the samples. They are linear in grad; the transpose is the sampler with the same noise.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def compute_type(dtype: torch.dtype) -> torch.dtype:
    """Returns the type that samples of a type are computed in."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def register() -> None:
    """Tells torch of the formulas and the fake kernels; the schemas have to be known."""
    torch.library.register_fake("cem_tetris::sample_normal", _fake)
    torch.library.register_fake("cem_tetris::sample_normal_no_grad", _fake)
    torch.library.register_vmap("cem_tetris::sample_normal_no_grad", _mapped)
    torch.library.register_fake("cem_tetris::sample_normal_seeded", _fake_seeded)
    torch.library.register_fake("cem_tetris::sample_normal_rows", _fake_rows)
    torch.library.register_fake("cem_tetris::sample_normal_backward", _fake_backward)
    torch.library.register_autograd("cem_tetris::sample_normal", _gradients, setup_context=_save)
    torch.library.register_autograd(
        "cem_tetris::sample_normal_backward", _second_gradients, setup_context=_save_backward
    )


def _mapped(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
    """What vmap calls: the mapped dimension becomes one more dimension of the batch of problems."""
    operator = torch.ops.cem_tetris.sample_normal_no_grad.default
    mean, std, num_samples, seed, seeds, generation, generations, *rest = arguments
    if any(dim is not None for dim in in_dims[5:]):  # no call of the operator has them
        pairs = list(zip(arguments, in_dims, strict=True))
        calls = ([x if dim is None else x.select(dim, i) for x, dim in pairs] for i in range(info.batch_size))
        return torch.stack([operator(*call) for call in calls]), 0

    def problems(x: Tensor, dim: int | None) -> Tensor:
        return x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)

    mean, std = problems(mean, in_dims[0]), problems(std, in_dims[1])
    seeds = mean.new_tensor(seed, dtype=torch.int64) if seeds is None else seeds
    noise = (0, problems(seeds, in_dims[4]), generation, generations)
    return operator(mean, std, num_samples, *noise, *rest), 0


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    mean, std, _, seed, seeds, generation, generations, shared_noise, antithetic, low, high, *rest = inputs
    dim_first, ctx.dtype = rest
    ctx.noise = (seed, generation, shared_noise, antithetic, dim_first)
    # Without bounds the gradients depend on nothing but the noise.
    bounded = low is not None or high is not None
    ctx.save_for_backward(*((mean, std) if bounded else (None, None)), seeds, generations, low, high)
    ctx.mean_dtype = mean.dtype


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    mean, std, seeds, generations, low, high = ctx.saved_tensors
    seed, generation, shared_noise, antithetic, dim_first = ctx.noise
    noise = (seed, seeds, generation, generations, shared_noise, antithetic)
    operators = torch.ops.cem_tetris
    if mean is not None:
        with torch.no_grad():  # the samples before they were clamped, in the type that was computed in
            samples = operators.sample_normal_no_grad.default(
                mean,
                std,
                grad.shape[-1 if dim_first else -2],
                *noise,
                None,
                None,
                dim_first,
                compute_type(ctx.dtype),
            )
            inside = torch.ones_like(samples, dtype=torch.bool)
            for bound, compare in ((low, torch.ge), (high, torch.le)):
                if bound is not None:
                    inside &= compare(samples, bound.unsqueeze(-1 if dim_first else -2))
        grad = torch.where(inside, grad, 0)
    mean_grad, std_grad = operators.sample_normal_backward.default(grad, *noise, dim_first)
    return (mean_grad.to(ctx.mean_dtype), std_grad.to(ctx.mean_dtype), *(None,) * 11)


def _save_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    grad, seed, seeds, generation, generations, shared_noise, antithetic, dim_first = inputs
    ctx.noise = (seed, generation, shared_noise, antithetic, dim_first)
    ctx.save_for_backward(seeds, generations)
    ctx.num_samples = grad.shape[-1 if dim_first else -2]
    ctx.dtype = grad.dtype


def _second_gradients(ctx: Any, mean_tangent: Tensor, std_tangent: Tensor) -> tuple[Tensor | None, ...]:
    seed, generation, shared_noise, antithetic, dim_first = ctx.noise
    seeds, generations = ctx.saved_tensors
    result = torch.ops.cem_tetris.sample_normal.default(
        mean_tangent,
        std_tangent,
        ctx.num_samples,
        seed,
        seeds,
        generation,
        generations,
        shared_noise,
        antithetic,
        None,
        None,
        dim_first,
        ctx.dtype,
    )
    return (result, *(None,) * 7)


def _shape(mean: Tensor, num_samples: int, dim_first: bool) -> tuple[int, ...]:
    *batch, dimensions = mean.shape
    return (*batch, dimensions, num_samples) if dim_first else (*batch, num_samples, dimensions)


def _fake(
    mean: Tensor,
    std: Tensor,
    num_samples: int,
    seed: int,
    seed_tensor: Tensor | None,
    generation: int,
    generation_tensor: Tensor | None,
    shared_noise: bool,
    antithetic: bool,
    low: Tensor | None,
    high: Tensor | None,
    dim_first: bool,
    dtype: torch.dtype,
) -> Tensor:
    return mean.new_empty(_shape(mean, num_samples, dim_first), dtype=dtype)


def _fake_seeded(
    mean: Tensor, std: Tensor, num_samples: int, seed: int, generation: int = 0, dim_first: bool = True
) -> Tensor:
    _check_devices(mean, std)
    return mean.new_empty(_shape(mean, num_samples, dim_first))


def _fake_rows(
    rows: Tensor,
    num_samples: int,
    seed: Tensor,
    generation: Tensor,
    low: Tensor | None = None,
    high: Tensor | None = None,
) -> Tensor:
    _check_devices(rows, seed, generation)
    return rows.new_empty((*rows.shape[:-2], num_samples, rows.shape[-1]))


def _check_devices(*tensors: Tensor) -> None:
    devices = [str(tensor.device) for tensor in tensors]
    if len(set(devices)) > 1:  # the meta device alone comes here unchecked
        raise RuntimeError(f"expected all tensors on one device, got {', '.join(devices)}")


def _fake_backward(
    grad: Tensor,
    seed: int,
    seed_tensor: Tensor | None,
    generation: int,
    generation_tensor: Tensor | None,
    shared_noise: bool,
    antithetic: bool,
    dim_first: bool,
) -> tuple[Tensor, Tensor]:
    shape = (*grad.shape[:-2], grad.shape[-2 if dim_first else -1])
    dtype = compute_type(grad.dtype)
    return grad.new_empty(shape, dtype=dtype), grad.new_empty(shape, dtype=dtype)
