"""The sampler's derivatives and its fake kernels.

A sample is mean + std * z, and z a function of the seed and the place: the gradients are the sums of grad and
of grad * z over the samples. They are linear in grad; the transpose is the sampler with the same noise.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernels.ops.library import one_by_one


def compute_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type that samples of a type are computed in."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def register() -> None:
    """Tell torch of the formulas, the fake kernels and the batching rule; the schemas have to be known."""
    fake, autograd = torch.library.register_fake, torch.library.register_autograd
    fake("cem_tetris::sample_normal", _fake)
    fake("cem_tetris::sample_normal_no_grad", _fake)
    fake("cem_tetris::sample_normal_seeded", _fake_seeded)
    fake("cem_tetris::sample_normal_rows", _fake_rows)
    fake("cem_tetris::sample_normal_backward", _fake_backward)
    torch.library.register_vmap("cem_tetris::sample_normal_no_grad", _mapped)
    autograd("cem_tetris::sample_normal", _gradients, setup_context=_save)
    autograd("cem_tetris::sample_normal_backward", _second_gradients, setup_context=_save_backward)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    mean, std, _, *noise, ctx.dtype, low, high = inputs
    seed, generation, seeds, generations, *flags = noise
    ctx.noise = (seed, generation, *flags)
    # Without bounds the gradients depend on nothing but the noise.
    bounded = low is not None or high is not None
    ctx.save_for_backward(*((mean, std) if bounded else (None, None)), seeds, generations, low, high)
    ctx.mean_dtype = mean.dtype


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    mean, std, *seeds, low, high = ctx.saved_tensors
    seed, generation, *flags = ctx.noise
    noise, samples_at = (seed, generation, *seeds, *flags), -1 if flags[-1] else -2
    if mean is not None:
        with torch.no_grad():  # the samples before they were clamped, in the type that was computed in
            draw = torch.ops.cem_tetris.sample_normal_no_grad.default
            samples = draw(mean, std, grad.shape[samples_at], *noise, compute_type(ctx.dtype), None, None)
            inside = torch.ones_like(samples, dtype=torch.bool)
            for bound, compare in ((low, torch.ge), (high, torch.le)):
                if bound is not None:
                    inside &= compare(samples, bound.unsqueeze(samples_at))
        grad = torch.where(inside, grad, 0)
    gradients = torch.ops.cem_tetris.sample_normal_backward.default(grad, *noise)
    return (*(each.to(ctx.mean_dtype) for each in gradients), *(None,) * 11)


def _save_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    grad, seed, generation, seeds, generations, *flags = inputs
    ctx.noise = (seed, generation, *flags)
    ctx.save_for_backward(seeds, generations)
    ctx.num_samples, ctx.dtype = grad.shape[-1 if flags[-1] else -2], grad.dtype


def _second_gradients(ctx: Any, mean_tangent: Tensor, std_tangent: Tensor) -> tuple[Tensor | None, ...]:
    seed, generation, *flags = ctx.noise
    noise = (seed, generation, *ctx.saved_tensors, *flags)
    draw = torch.ops.cem_tetris.sample_normal.default
    result = draw(mean_tangent, std_tangent, ctx.num_samples, *noise, ctx.dtype, None, None)
    return (result, *(None,) * 7)


def _mapped(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> Any:
    """What vmap calls: the mapped dimension becomes one more dimension of the batch of problems."""
    operator = torch.ops.cem_tetris.sample_normal_no_grad.default
    mean, std, num_samples, seed, generation, seeds, *rest = arguments
    if any(dim is not None for dim in in_dims[6:]):  # no call of the operator has them
        return one_by_one(operator, info, in_dims, *arguments)

    def problems(x: Tensor, dim: int | None) -> Tensor:
        return x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)

    mean, std = problems(mean, in_dims[0]), problems(std, in_dims[1])
    seeds = mean.new_tensor(seed, dtype=torch.int64) if seeds is None else seeds
    return operator(mean, std, num_samples, 0, generation, problems(seeds, in_dims[5]), *rest), 0


def _shape(mean: Tensor, num_samples: int, dim_first: bool) -> tuple[int, ...]:
    *batch, dimensions = mean.shape
    return (*batch, dimensions, num_samples) if dim_first else (*batch, num_samples, dimensions)


def _fake(mean: Tensor, std: Tensor, num_samples: int, *rest: Any) -> Tensor:
    *_, dim_first, dtype, _, _ = rest
    return mean.new_empty(_shape(mean, num_samples, dim_first), dtype=dtype)


def _fake_seeded(
    mean: Tensor, std: Tensor, num_samples: int, seed: int, generation: int = 0, dim_first: bool = True
) -> Tensor:
    _check_devices(mean, std)
    return mean.new_empty(_shape(mean, num_samples, dim_first))


def _fake_rows(rows: Tensor, num_samples: int, seed: Tensor, generation: Tensor, *bounds: Any) -> Tensor:
    _check_devices(rows, seed, generation)
    return rows.new_empty((*rows.shape[:-2], num_samples, rows.shape[-1]))


def _check_devices(*tensors: Tensor) -> None:
    devices = [str(tensor.device) for tensor in tensors]
    if len(set(devices)) > 1:  # the meta device alone comes here unchecked
        raise RuntimeError(f"expected all tensors on one device, got {', '.join(devices)}")


def _fake_backward(grad: Tensor, *noise: Any) -> tuple[Tensor, Tensor]:
    shape = (*grad.shape[:-2], grad.shape[-2 if noise[-1] else -1])
    dtype = compute_type(grad.dtype)
    return grad.new_empty(shape, dtype=dtype), grad.new_empty(shape, dtype=dtype)
