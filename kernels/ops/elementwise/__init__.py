"""Sigmoid, sum and product: one source for CPU and CUDA, and one table. Begin with `op.h`."""

from kernels.ops.elementwise.op import (
    elementwise_mult,
    elementwise_mult_reference,
    sigmoid,
    sigmoid_reference,
    vector_add,
    vector_add_reference,
)

__all__ = [
    "elementwise_mult",
    "elementwise_mult_reference",
    "sigmoid",
    "sigmoid_reference",
    "vector_add",
    "vector_add_reference",
]
