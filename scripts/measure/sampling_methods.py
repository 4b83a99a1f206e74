"""The ways to draw ``mean + std * noise`` that benchmark_sampling.py compares, and their measured times."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SEED = 1

Sample = Callable[[Tensor, Tensor, int], Tensor]
"""Draws: (mean, std, number of samples) -> samples; mean and std of shape (dim,)."""


@dataclass(frozen=True)
class Method:
    """A way to draw a population."""

    name: str
    label: str
    make: Callable[[], Sample]  # called again for every size
    capturable: bool = True  # by a CUDA graph
    independent: bool = True  # every entry has noise of its own
    devices: tuple[str, ...] = ("cuda", "cpu")  # where it is of interest


def _eager(mean: Tensor, std: Tensor, count: int) -> Tensor:
    noise = torch.randn((mean.shape[0], count), device=mean.device, dtype=mean.dtype)
    return mean.unsqueeze(1) + std.unsqueeze(1) * noise


def _compiled() -> Sample:
    # One compilation a size, for that size: what the compiler can do best. It gives up after eight sizes of a
    # function, hence the reset.
    torch.compiler.reset()
    return torch.compile(_eager, dynamic=False, fullgraph=True)


def _torch_normal(mean: Tensor, std: Tensor, count: int) -> Tensor:
    shape = (mean.shape[0], count)
    return torch.normal(mean.unsqueeze(1).expand(shape), std.unsqueeze(1).expand(shape))


def _empty(mean: Tensor, count: int) -> Tensor:
    return torch.empty((mean.shape[0], count), device=mean.device, dtype=mean.dtype)


def _filled(mean: Tensor, std: Tensor, count: int) -> Tensor:
    return _empty(mean, count).fill_(1.0)


def _in_place(mean: Tensor, std: Tensor, count: int) -> Tensor:
    samples = _empty(mean, count).normal_()
    return torch.addcmul(mean.unsqueeze(1), samples, std.unsqueeze(1), out=samples)


def _ours(*, rows: bool = False, shared: bool = False, seeded: bool = True) -> Sample:
    """Return the operator: with a seed, and a new generation for every call, as the optimizer has it."""
    from kernels.normal import sample_normal

    generations = itertools.count()

    def sample(mean: Tensor, std: Tensor, count: int) -> Tensor:
        number = next(generations)
        return sample_normal(
            mean, std, count, seed=SEED, generation=number, dim_first=not rows, shared_noise=shared
        )

    return sample if seeded else sample_normal


def _optimizer_torch() -> Sample:
    from cem.sampling import make_sampler

    sampler = make_sampler("torch", torch.device("cpu"))
    return lambda mean, std, count: sampler(mean, std, count, seed=SEED, generation=0)


METHODS = (
    Method("eager", "mean + std * randn", lambda: _eager),
    Method("compile", "torch.compile of it", _compiled, devices=("cuda",)),
    # It looks whether every std is >= 0, and waits for the answer.
    Method("torch_normal", "torch.normal", lambda: _torch_normal, capturable=False),
    Method("normal_", "Tensor.normal_, addcmul", lambda: _in_place),
    Method("noise", "Tensor.normal_ alone", lambda: lambda mean, std, n: _empty(mean, n).normal_()),
    Method("backend_torch", "cem backend torch", _optimizer_torch, devices=("cpu",)),
    Method("ours", "sample_normal", _ours),
    # The optimizer's layout: a candidate a row.
    Method("rows", "sample_normal as (N, d)", lambda: _ours(rows=True)),
    # Beside the kernel, one of torch's draws a seed from torch's generator.
    Method("unseeded", "sample_normal without a seed", lambda: _ours(seeded=False)),
    Method("shared", "sample_normal, shared noise", lambda: _ours(shared=True), independent=False),
    Method("fill", "fill_, the floor", lambda: _filled, independent=False),
)
"""Every method there is."""

LABELS = {method.name: method.label for method in METHODS}
"""What tables and pictures call them."""


def methods_for(device: str) -> tuple[Method, ...]:
    """Return the methods of a kind of device, ``"cpu"`` or ``"cuda"``."""
    return tuple(method for method in METHODS if device in method.devices)


def median(size: Mapping[str, Any], clock: str, name: str) -> float:
    """Return the median time of a method at a measured size, in microseconds."""
    return float(size[clock][name]["median"])


def speedups(sizes: Sequence[Mapping[str, Any]], clock: str, over: str, of: str = "ours") -> list[float]:
    """Return how many times as long one method takes as another, ours by default, size by size."""
    return [median(size, clock, over) / median(size, clock, of) for size in sizes]
