"""What ``python -m kernels check elementwise_mult`` compares."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from kernels.ops.check import Case
from kernels.ops.elementwise_mult import elementwise_mult, elementwise_mult_reference


def _inputs(generator: Generator, size: int) -> tuple[Tensor, Tensor]:
    """Two vectors of the size."""
    a, b = torch.randn(2, size, generator=generator, dtype=torch.float64)
    return a, b


CASE = Case(
    reference=elementwise_mult_reference,
    operator=elementwise_mult,
    inputs=_inputs,
    small=(37,),
    large=(10_007,),
)
