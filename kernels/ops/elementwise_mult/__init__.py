"""``a * b``, with a fused backward pass."""

from kernels.ops.elementwise_mult.op import elementwise_mult, elementwise_mult_reference

__all__ = ["elementwise_mult", "elementwise_mult_reference"]
