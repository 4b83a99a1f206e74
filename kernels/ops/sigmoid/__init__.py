"""``1 / (1 + exp(-x))``, stable for every x."""

from kernels.ops.sigmoid.op import sigmoid, sigmoid_reference

__all__ = ["sigmoid", "sigmoid_reference"]
