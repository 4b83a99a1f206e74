"""What ``python -m kernels check vector_add`` compares."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from kernels.ops.check import Case
from kernels.ops.vector_add import vector_add, vector_add_reference


def _inputs(generator: Generator, size: int) -> tuple[Tensor, Tensor]:
    """Two vectors of the size."""
    a, b = torch.randn(2, size, generator=generator, dtype=torch.float64)
    return a, b


CASE = Case(reference=vector_add_reference, operator=vector_add, inputs=_inputs, small=(37,), large=(10_007,))
