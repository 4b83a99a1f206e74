"""``a * b``: the public function, its gradients and a reference.

The backward pass gives both gradients, grad * b and grad * a, in one kernel: it reads three tensors and
writes two, where two products read four and write two.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernels.ops.elementwise import NUMBERS, check_pair
from kernels.ops.library import Library, is_transformed


def elementwise_mult(a: Tensor, b: Tensor) -> Tensor:
    """Returns ``a * b``, element by element, twice differentiable. Products of integers wrap, as torch's do.

    Examples:
        >>> elementwise_mult(torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0]))
        tensor([10., 40.])

    Args:
        a: any shape; float16, bfloat16, float32, float64, uint8, int8, int16, int32 or int64; CPU or CUDA.
        b: a tensor of the same shape, dtype and device. Where its layout differs from that of a, or a has
            gaps, the product costs a copy.

    Returns:
        A new tensor with the shape, dtype, device and, but for gaps, the layout of a.

    Raises:
        TypeError: one is no tensor of these types, or the types differ.
        ValueError: the shapes or the devices differ.
        kernels.BuildError: the operator has to be built, and cannot be.
    """
    if is_transformed():
        check_pair(a, b, NUMBERS)
        return elementwise_mult_reference(a, b)
    try:
        _LIBRARY.ensure(a)
        operators = torch.ops.cem_tetris
        recorded = (a.requires_grad or b.requires_grad) and torch.is_grad_enabled()
        operator = operators.elementwise_mult if recorded else operators.elementwise_mult_forward
        result: Tensor = operator.default(a, b)
    except (AttributeError, RuntimeError, TypeError):
        check_pair(a, b, NUMBERS)  # the operator checks too: only a call that it refuses pays for this
        torch.empty_like(a)  # where there is no memory, torch says so better
        raise
    return result


def elementwise_mult_reference(a: Tensor, b: Tensor) -> Tensor:
    """Returns what ``elementwise_mult`` computes, in plain PyTorch.

    Args:
        a: any shape, any device.
        b: as a.
    """
    return torch.mul(a, b)


def _fake(a: Tensor, b: Tensor) -> Tensor:
    check_pair(a, b, NUMBERS)
    return torch.empty_like(a)


def _save_arguments(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    a, b = ctx.saved_tensors
    wants_a, wants_b = ctx.needs_input_grad
    if wants_a and wants_b:
        both: tuple[Tensor, Tensor] = torch.ops.cem_tetris.elementwise_mult_backward(grad, a, b)
        return both
    multiply = torch.ops.cem_tetris.elementwise_mult
    return multiply(grad, b) if wants_a else None, multiply(grad, a) if wants_b else None


def _double_backward(
    ctx: Any, for_a: Tensor, for_b: Tensor
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    # The results were grad * b and grad * a; for_a and for_b are the gradients with respect to them.
    grad, a, b = ctx.saved_tensors
    wants_grad, wants_a, wants_b = ctx.needs_input_grad
    return (
        torch.addcmul(for_a * b, for_b, a) if wants_grad else None,
        for_b * grad if wants_a else None,
        for_a * grad if wants_b else None,
    )


def _register() -> None:
    library = torch.library
    for name in ("cem_tetris::elementwise_mult", "cem_tetris::elementwise_mult_forward"):
        library.register_fake(name, _fake)
    library.register_fake(
        "cem_tetris::elementwise_mult_backward",
        lambda grad, a, b: (torch.empty_like(a), torch.empty_like(a)),
    )
    library.register_autograd("cem_tetris::elementwise_mult", _backward, setup_context=_save_arguments)
    library.register_autograd(
        "cem_tetris::elementwise_mult_backward", _double_backward, setup_context=_save_arguments
    )


_LIBRARY = Library("elementwise_mult", _register)
