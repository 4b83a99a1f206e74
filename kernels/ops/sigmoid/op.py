"""The logistic function ``1 / (1 + exp(-x))``: the public function, its gradients and a reference.

With y = sigmoid(x), dy/dx = y (1 - y): the backward pass needs the result alone, in one kernel that reads the
gradient and y and writes once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernels.ops.elementwise import FLOATING, check_tensor
from kernels.ops.library import Library, is_transformed


def sigmoid(x: Tensor) -> Tensor:
    """Returns ``1 / (1 + exp(-x))`` of every element, twice differentiable.

    No x overflows, and the relative accuracy holds down to the subnormal results of large negative x, where
    torch.sigmoid gives zero. NaN gives NaN, -inf 0 and inf 1.

    Examples:
        >>> sigmoid(torch.tensor([-1000.0, 0.0, 1000.0]))
        tensor([0.0000, 0.5000, 1.0000])

    Args:
        x: any shape; float16, bfloat16, float32 or float64; CPU or CUDA. A layout without gaps, transposed or
            channels last for example, is kept; any other costs a copy.

    Returns:
        A new tensor with the shape, dtype and device of x.

    Raises:
        TypeError: x is no tensor of a floating type.
        kernels.BuildError: the operator has to be built, and cannot be.
    """
    if is_transformed():
        check_tensor(x, FLOATING)
        return sigmoid_reference(x)
    try:
        _LIBRARY.ensure(x)
        operators = torch.ops.cem_tetris
        recorded = x.requires_grad and torch.is_grad_enabled()
        operator = operators.sigmoid if recorded else operators.sigmoid_forward
        result: Tensor = operator.default(x)
    except (AttributeError, RuntimeError, TypeError):
        check_tensor(x, FLOATING)  # the operator checks too: only a call that it refuses pays for this
        torch.empty_like(x)  # where there is no memory, torch says so better
        raise
    return result


def sigmoid_reference(x: Tensor) -> Tensor:
    """Returns what ``sigmoid`` computes, in plain PyTorch; torch differentiates it.

    Args:
        x: any shape, a floating type, any device.
    """
    power = torch.exp(torch.where(x < 0, x, -x))  # -|x|, but torch's derivative of that is 0 at 0
    return torch.where(x < 0, power, torch.ones_like(power)) / (1 + power)


def _fake(x: Tensor) -> Tensor:
    check_tensor(x, FLOATING)
    return torch.empty_like(x)


def _save_result(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(output)


def _backward(ctx: Any, grad: Tensor) -> Tensor:
    (y,) = ctx.saved_tensors
    result: Tensor = torch.ops.cem_tetris.sigmoid_backward(grad, y)
    return result


def _save_arguments(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _double_backward(ctx: Any, grad_grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    grad, y = ctx.saved_tensors
    wants_grad, wants_y = ctx.needs_input_grad
    return (
        torch.ops.cem_tetris.sigmoid_backward(grad_grad, y) if wants_grad else None,
        grad_grad * grad * (1 - 2 * y) if wants_y else None,
    )


def _register() -> None:
    library = torch.library
    library.register_fake("cem_tetris::sigmoid", _fake)
    library.register_fake("cem_tetris::sigmoid_forward", _fake)
    library.register_fake("cem_tetris::sigmoid_backward", lambda grad, y: torch.empty_like(y))
    library.register_autograd("cem_tetris::sigmoid", _backward, setup_context=_save_result)
    library.register_autograd("cem_tetris::sigmoid_backward", _double_backward, setup_context=_save_arguments)


_LIBRARY = Library("sigmoid", _register)
