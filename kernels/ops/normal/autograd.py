"""The sampler's derivatives and its fake kernels.

A sample is mean + std * z, and z a function of the seed and the place: the gradients are the sums of grad and
of grad * z over the samples, with z drawn again.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from kernels.ops.library import mapped, register_fake


def compute_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type that samples of a type are computed in."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def draw_noise(shape: tuple[int, ...], device: torch.device, num_samples: int, *noise: Any) -> Tensor:
    """Return z itself for a mean of a shape; ``noise`` as the operator takes it, then the samples' type."""
    ones = torch.ones(shape, dtype=compute_type(noise[-1]), device=device)
    draw = torch.ops.cem_tetris.sample_normal_no_grad.default
    samples: Tensor = draw(torch.zeros_like(ones), ones, num_samples, *noise[:-1], ones.dtype, None, None)
    return samples


def register() -> None:
    """Tell torch of the formulas, the fake kernels and the batching rule; the schemas have to be known."""
    register_fake("sample_normal", _fake)
    register_fake("sample_normal_no_grad", _fake)
    register_fake("sample_normal_seeded", _fake_seeded)
    register_fake("sample_normal_rows", lambda rows, n, *_: _samples(rows[..., 0, :], n, False))
    operator = torch.ops.cem_tetris.sample_normal_no_grad.default
    torch.library.register_vmap(operator, partial(mapped, operator))
    torch.library.register_autograd("cem_tetris::sample_normal", _gradients, setup_context=_save)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    mean, std, ctx.num_samples, seed, generation, seeds, generations, *flags, dtype, low, high = inputs
    ctx.numbers, ctx.flags = (seed, generation), (*flags, dtype)
    # Without bounds the gradients depend on nothing but the noise.
    bounded = low is not None or high is not None
    ctx.save_for_backward(*((mean, std) if bounded else (None, None)), seeds, generations, low, high)
    ctx.mean_dtype = mean.dtype


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    mean, std, *seeds, low, high = ctx.saved_tensors
    dim_first = ctx.flags[2]
    samples_at = -1 if dim_first else -2
    shape = grad.shape[:-1] if dim_first else (*grad.shape[:-2], grad.shape[-1])
    z = draw_noise(shape, grad.device, ctx.num_samples, *ctx.numbers, *seeds, *ctx.flags)
    grad = grad.to(z.dtype)
    if mean is not None:
        with torch.no_grad():
            samples = mean.unsqueeze(samples_at) + std.unsqueeze(samples_at) * z
            inside = torch.ones_like(samples, dtype=torch.bool)
            for bound, compare in ((low, torch.ge), (high, torch.le)):
                if bound is not None:
                    inside &= compare(samples, bound.unsqueeze(samples_at))
        grad = torch.where(inside, grad, 0)
    gradients = grad.sum(samples_at), (grad * z).sum(samples_at)
    return (*(each.to(ctx.mean_dtype) for each in gradients), *(None,) * 11)


def _samples(mean: Tensor, count: int, dim_first: bool, dtype: torch.dtype | None = None) -> Tensor:
    *batch, dimensions = mean.shape
    return mean.new_empty((*batch, *((dimensions, count) if dim_first else (count, dimensions))), dtype=dtype)


def _fake(mean: Tensor, std: Tensor, num_samples: int, *rest: Any) -> Tensor:
    *_, dim_first, dtype, _, _ = rest
    return _samples(mean, num_samples, dim_first, dtype)


def _fake_seeded(
    mean: Tensor, std: Tensor, num_samples: int, seed: int, generation: int = 0, dim_first: bool = True
) -> Tensor:
    return _samples(mean, num_samples, dim_first)
