"""What ``python -m kernels check`` compares of the elementwise operators."""

from __future__ import annotations

import inspect
from functools import partial

import torch
from torch import Generator, Tensor

from kernels.ops.check import Case
from kernels.ops.elementwise import op


def _inputs(generator: Generator, size: int, *, count: int) -> tuple[Tensor, ...]:
    """Values up to about 40, where exp(40) + 1 is exp(40) in both types."""
    return tuple(10.0 * torch.randn(count, size, generator=generator, dtype=torch.float64))


CASES = {
    name: Case(
        reference=operator.reference,
        operator=getattr(op, name),
        inputs=partial(_inputs, count=len(inspect.signature(operator.reference).parameters)),
        small=(37,),
        large=(10_007,),
        prototype=True,
    )
    for name, operator in op.TABLE.items()
}
