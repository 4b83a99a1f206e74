"""The operator of docs/writing_a_kernel.md as a package, compiled by the first import."""

from pathlib import Path

import torch

import kernels
from kernels import Extension

_HERE = Path(__file__).parent
Extension("my_sigmoid", _HERE / "my_sigmoid.cpp").load()
if torch.cuda.is_available():
    _HEADERS = Path(kernels.__file__).parent / "ops"
    Extension("my_sigmoid_cuda", _HERE / "my_sigmoid.cu", include_dirs=_HEADERS).load()


@torch.library.register_fake("tutorial::my_sigmoid")
def fake_sigmoid(x):
    """Return an empty tensor like the result."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.register_fake("tutorial::my_sigmoid_backward")
def fake_backward(grad, y):
    """Return an empty tensor like the gradient."""
    return torch.empty_like(y, memory_format=torch.contiguous_format)


def save_output(ctx, inputs, output):
    """Keep the output for the backward pass."""
    ctx.save_for_backward(output)


def backward(ctx, grad):
    """Return the gradient of x."""
    (y,) = ctx.saved_tensors
    if (
        torch.is_grad_enabled()
    ):  # create_graph=True: autograd has to differentiate this formula, too
        return grad * (1 - y) * y
    return torch.ops.tutorial.my_sigmoid_backward(grad, y)


torch.library.register_autograd("tutorial::my_sigmoid", backward, setup_context=save_output)


def my_sigmoid(x):
    """Return 1 / (1 + exp(-x)) of a tensor of float32 or float64."""
    if x.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"expected x to be float32 or float64, got {x.dtype}")
    return torch.ops.tutorial.my_sigmoid(x)
