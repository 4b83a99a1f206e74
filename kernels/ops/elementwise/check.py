"""What ``python -m kernels check`` compares of the elementwise operators."""

from __future__ import annotations

from functools import partial

import torch
from torch import Generator, Tensor

from kernels.ops import elementwise
from kernels.ops.check import Case


def _inputs(generator: Generator, size: int, *, count: int) -> tuple[Tensor, ...]:
    """Values up to about 40, where exp(40) + 1 is exp(40) in both types."""
    return tuple(10.0 * torch.randn(count, size, generator=generator, dtype=torch.float64))


CASES = {
    name: Case(
        reference=getattr(elementwise, f"{name}_reference"),
        operator=getattr(elementwise, name),
        inputs=partial(_inputs, count=count),
        small=(37,),
        large=(10_007,),
    )
    for name, count in (("sigmoid", 1), ("vector_add", 2), ("elementwise_mult", 2))
}
