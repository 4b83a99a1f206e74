"""What ``python -m kernels check sigmoid`` compares."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from kernels.ops.check import Case
from kernels.ops.sigmoid import sigmoid, sigmoid_reference


def _inputs(generator: Generator, size: int) -> tuple[Tensor]:
    """Values up to about 40, where exp(40) + 1 is exp(40) in both types."""
    return (10.0 * torch.randn(size, generator=generator, dtype=torch.float64),)


CASE = Case(reference=sigmoid_reference, operator=sigmoid, inputs=_inputs, small=(37,), large=(10_007,))
