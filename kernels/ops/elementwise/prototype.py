"""The elementwise operators and their derivatives in Numba; all arrays have one shape.

``check.load_numba`` chooses where the kernels run.
"""

import math
from functools import partial
from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

Array = NDArray[Any]

# Any grid computes the same. It is small, because the simulator starts a Python thread for each
# of its threads.
BLOCKS = 2
THREADS = 32


@cuda.jit
def sigmoid_kernel(x: Array, y: Array) -> None:
    """Write 1 / (1 + exp(-x)).

    A thread owns every ``gridsize``-th element: any grid covers any size.
    """
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        e = math.exp(-abs(x[i]))  # at most 1: it cannot overflow
        y[i] = 1.0 / (1.0 + e) if x[i] >= 0.0 else e / (1.0 + e)


@cuda.jit
def sigmoid_backward_kernel(grad: Array, y: Array, grad_x: Array) -> None:
    """Write the gradient of x, from the output alone: dy/dx = y (1 - y)."""
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        grad_x[i] = grad[i] * (1.0 - y[i]) * y[i]


@cuda.jit
def add_kernel(a: Array, b: Array, total: Array) -> None:
    """Write the sum; the elements are shared as in ``sigmoid_kernel``."""
    for i in range(cuda.grid(1), total.size, cuda.gridsize(1)):
        total[i] = a[i] + b[i]


@cuda.jit
def multiply_kernel(a: Array, b: Array, product: Array) -> None:
    """Write the product; the elements are shared as in ``sigmoid_kernel``."""
    for i in range(cuda.grid(1), product.size, cuda.gridsize(1)):
        product[i] = a[i] * b[i]


def _launch(kernel: Any, *inputs: Array) -> Array:
    """Return what a kernel of flat arrays writes: an array like the first input."""
    flat = [cuda.to_device(array.ravel()) for array in inputs]
    result = cuda.device_array(flat[0].shape, flat[0].dtype)
    kernel[BLOCKS, THREADS](*flat, result)
    return np.asarray(result.copy_to_host()).reshape(inputs[0].shape)


sigmoid_forward = partial(_launch, sigmoid_kernel)
vector_add_forward = partial(_launch, add_kernel)
elementwise_mult_forward = partial(_launch, multiply_kernel)


def sigmoid_backward(grad: Array, x: Array) -> Array:
    """Return the gradient with respect to x."""
    return _launch(sigmoid_backward_kernel, grad, sigmoid_forward(x))


def vector_add_backward(grad: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """Return the gradients with respect to a and b.

    A sum passes on the gradient that it gets, without a kernel.
    """
    return grad, grad


def elementwise_mult_backward(grad: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """Return the gradients with respect to a and b."""
    return _launch(multiply_kernel, grad, b), _launch(multiply_kernel, grad, a)
