"""The elementwise operators, with their gradients and references in plain PyTorch.

The derivative of y = sigmoid(x) is y (1 - y): its backward pass needs the result alone. That of
a product gives both gradients in one kernel, which reads three tensors where two products read
four.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels.ops.library import Gradient, Library, is_traced, is_transformed, public_error


def sigmoid(x: Tensor) -> Tensor:
    """Return ``1 / (1 + exp(-x))`` of every element, twice differentiable.

    The exponential overflows for no x. Results for large negative x are accurate down to
    subnormal numbers, where torch.sigmoid returns 0. NaN gives NaN, -inf gives 0 and inf 1.

    Examples:
        >>> sigmoid(torch.tensor([-1000.0, 0.0, 1000.0]))
        tensor([0.0000, 0.5000, 1.0000])

    Args:
        x: any shape; float16, bfloat16, float32 or float64; CPU or CUDA. A memory layout
            without gaps, such as channels last, is kept. With any other layout x is copied.

    Returns:
        A new tensor with the shape, dtype and device of x.

    Raises:
        TypeError: x is not a tensor of one of these types.
        kernels.BuildError: the operator has to be built, and cannot be.
    """
    return _apply("sigmoid", x)


def vector_add(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a + b``, element by element.

    Sums of integers wrap, as torch's do.

    Examples:
        >>> vector_add(torch.tensor([1, 2]), torch.tensor([10, 20]))
        tensor([11, 22])

    Args:
        a: any shape; float16, bfloat16, float32, float64, uint8, int8, int16, int32 or int64;
            CPU or CUDA.
        b: a tensor of the same shape, dtype and device. If its memory layout differs from that
            of a, or if a has gaps, a copy is made.

    Returns:
        A new tensor with the shape, dtype and device of a. It has no gaps, and otherwise the
        memory layout of a.

    Raises:
        TypeError: an argument is not a tensor of one of these types, or the types differ.
        ValueError: the shapes or the devices differ.
        kernels.BuildError: the operator has to be built, and cannot be.
    """
    return _apply("vector_add", a, b)


def elementwise_mult(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a * b``, element by element, twice differentiable.

    Products of integers wrap, as torch's do.

    Examples:
        >>> elementwise_mult(torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0]))
        tensor([10., 40.])

    Args:
        a: as ``vector_add`` takes it.
        b: as ``a``.

    Returns:
        As ``vector_add``, whose errors are the same.
    """
    return _apply("elementwise_mult", a, b)


def sigmoid_reference(x: Tensor) -> Tensor:
    """Return what ``sigmoid`` computes, in plain PyTorch.

    It takes any shape, floating type and device.
    """
    # -|x| is written in another way, because torch takes its derivative at 0 as 0.
    power = torch.exp(torch.where(x < 0, x, -x))
    return torch.where(x < 0, power, torch.ones_like(power)) / (1 + power)


def vector_add_reference(a: Tensor, b: Tensor) -> Tensor:
    """Return what ``vector_add`` computes, in plain PyTorch.

    It takes any shape, type and device.
    """
    return torch.add(a, b)


def elementwise_mult_reference(a: Tensor, b: Tensor) -> Tensor:
    """Return what ``elementwise_mult`` computes, in plain PyTorch.

    It takes any shape, type and device.
    """
    return torch.mul(a, b)


def _apply(name: str, *tensors: Tensor) -> Tensor:
    """Call the elementwise operator ``name``, in its cheaper form if no gradient is needed.

    The cheaper form is the operator ``NAME_forward``. It computes the same as ``NAME``, but has
    no derivative, so that torch runs less Python code per call.
    """
    try:
        # Only the reference in plain PyTorch supports forward-mode AD and torch.func.
        if is_transformed():
            return REFERENCES[name](*tensors)
        # There are one or two tensors, so it is enough to look at the first and the last.
        wants_gradient = tensors[0].requires_grad or tensors[-1].requires_grad
        if not ((wants_gradient and torch.is_grad_enabled()) or is_traced()):
            name = _FORWARD_NAMES[name]
        result: Tensor = _LIBRARY.call(name, *tensors)
    except (AttributeError, RuntimeError) as error:
        raise _clarify(error, tensors[0]) from None
    return result


def _clarify(error: Exception, tensor: Tensor) -> Exception:
    """Return the error that a caller should get when an operator on a tensor raised ``error``.

    A failed check in C++ becomes a TypeError or a ValueError. An AttributeError becomes a
    TypeError, because an argument without the attributes of a tensor is not one.
    """
    clear_error = public_error(error)
    if clear_error is error:
        # The error may be a lack of memory for the result. Then torch cannot allocate it
        # either, and raises its own error here, which is clearer.
        torch.empty_like(tensor)
    return clear_error


def _save_arguments(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _save_result(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(output)


def _sigmoid_backward(ctx: Any, grad: Tensor) -> Any:
    return torch.ops.cem_tetris.sigmoid_backward(grad, *ctx.saved_tensors)


def _sigmoid_double_backward(ctx: Any, grad_grad: Tensor) -> Any:
    """Return the gradients of ``sigmoid_backward``, which computes grad y (1 - y)."""
    grad, y = ctx.saved_tensors
    wants_grad, wants_y = ctx.needs_input_grad
    d_grad = torch.ops.cem_tetris.sigmoid_backward(grad_grad, y) if wants_grad else None
    d_y = grad_grad * grad * (1 - 2 * y) if wants_y else None
    return d_grad, d_y


def _product_backward(ctx: Any, grad: Tensor) -> Any:
    """Return the gradients of a and b for a product a b; None if one is not needed."""
    a, b = ctx.saved_tensors
    wants_a, wants_b = ctx.needs_input_grad
    if wants_a and wants_b and not torch.is_grad_enabled():
        # This operator computes both gradients at once, but has no derivative itself.
        return torch.ops.cem_tetris.elementwise_mult_backward(grad, a, b)
    multiply = torch.ops.cem_tetris.elementwise_mult
    d_a = multiply(grad, b) if wants_a else None
    d_b = multiply(grad, a) if wants_b else None
    return d_a, d_b


REFERENCES: dict[str, Callable[..., Tensor]] = {
    "sigmoid": sigmoid_reference,
    "vector_add": vector_add_reference,
    "elementwise_mult": elementwise_mult_reference,
}
"""The public operators by name; the tests go through them, too."""

_FORWARD_NAMES = {name: f"{name}_forward" for name in REFERENCES}
_FAKES: dict[str, Callable[..., Any]] = dict.fromkeys(
    (*REFERENCES, *_FORWARD_NAMES.values()), lambda first, *_: torch.empty_like(first)
)
_FAKES |= {
    "sigmoid_backward": lambda grad, y: torch.empty_like(y),
    "elementwise_mult_backward": lambda grad, a, b: (torch.empty_like(a), torch.empty_like(a)),
}
_GRADIENTS = {
    "sigmoid": Gradient(_sigmoid_backward, _save_result),
    "sigmoid_backward": Gradient(_sigmoid_double_backward, _save_arguments),
    "vector_add": Gradient(lambda ctx, grad: (grad, grad)),
    "elementwise_mult": Gradient(_product_backward, _save_arguments),
}
_LIBRARY = Library("elementwise", _FAKES, _GRADIENTS)
