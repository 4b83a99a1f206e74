"""What ``python -m kernels check lltm`` compares."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from kernels.ops.check import Case
from kernels.ops.lltm import lltm, lltm_reference


def _inputs(generator: Generator, batch: int, inputs: int, states: int) -> tuple[Tensor, ...]:
    """Input, weights, bias, old_h and old_cell; the gates' sums are of size 1 or so."""
    shapes = [(batch, inputs), (3 * states, states + inputs), (3 * states,), (batch, states), (batch, states)]
    made = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    made[1] /= (states + inputs) ** 0.5
    return tuple(made)


# The sizes for C++ and CUDA are those of the tutorial that the cell comes from.
CASES = {
    "lltm": Case(
        reference=lltm_reference, operator=lltm, inputs=_inputs, small=(2, 3, 5), large=(16, 32, 128)
    )
}
