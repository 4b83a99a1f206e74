"""The LLTM cell of a PyTorch tutorial, with a fused forward and a fused backward pass.

The tutorial is "Custom C++ and CUDA Extensions" by P. Goldsborough. With X = [old_h, input] and
gates = X weights^T + bias, whose columns are those of three gates:

    new_cell = old_cell + elu(gates_candidate) * sigmoid(gates_input)
    new_h    = tanh(new_cell) * sigmoid(gates_output)

It is an LSTM cell that never forgets.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from kernels.ops.library import Gradient, Library, is_traced, is_transformed, public_error


def lltm(
    input: Tensor,  # noqa: A002
    weights: Tensor,
    bias: Tensor,
    old_h: Tensor,
    old_cell: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the next state (h, cell) of an LLTM cell, an LSTM cell without a forget gate.

    The results are differentiable any number of times with respect to all arguments. All
    tensors have the same device and the same dtype: float32, float64, float16 or bfloat16. For
    16-bit types, the matrix product is computed as torch computes it, and the rest in float32.

    Under autocast, the tensors may have different dtypes, float32 or a 16-bit type. Then the
    cell is computed in float32. If they have the same dtype, autocast changes neither the
    results nor the first derivatives. It does change higher derivatives, and derivatives by
    ``torch.func``, because torch's own operators compute them.

    Args:
        input: shape (batch, inputs).
        weights: shape (3 * states, states + inputs). The rows are those of the input gate, the
            output gate and the candidate; the columns of old_h come before those of input.
        bias: shape (3 * states,).
        old_h: shape (batch, states).
        old_cell: shape (batch, states).

    Returns:
        new_h and new_cell, each of shape (batch, states).

    Raises:
        ValueError: the sizes or the devices do not match.
        TypeError: an argument is not a tensor, or the types do not match.
        kernels.BuildError: the operator is not built yet, and cannot be built.
    """
    try:
        # Only plain PyTorch supports forward-mode AD and torch.func.
        if is_transformed():
            with _without_autocast(input):
                return lltm_reference(input, weights, bias, old_h, old_cell)
        _LIBRARY.ensure(input)
        wants_gradient = (
            weights.requires_grad
            or bias.requires_grad
            or old_h.requires_grad
            or old_cell.requires_grad
            or input.requires_grad
        )
        run = _choose_operator(wants_gradient and torch.is_grad_enabled())
        new_h, new_cell, _gates = run(input, weights, bias, old_h, old_cell)
        return new_h, new_cell
    except (AttributeError, RuntimeError) as error:
        # Convert a failed check in C++ to a TypeError or a ValueError. An AttributeError means
        # that an argument is not a tensor.
        raise public_error(error) from None


def _choose_operator(is_recorded: bool) -> Any:
    """Return the operator for a call; ``is_recorded``: autograd makes a record of it."""
    operators = torch.ops.cem_tetris
    # The rules for tracing and autocast are registered for the operator `lltm`.
    if is_traced():
        return operators.lltm.default
    if is_recorded:
        if torch.compiler.is_compiling() or torch._C._is_any_autocast_enabled():
            return operators.lltm.default
        # This autograd.Function has the same derivative as the operator `lltm`, but torch runs
        # much less Python code for it.
        return _run_with_autograd
    # This operator has no derivative, and is the fastest to call.
    return operators.lltm_forward.default


def _without_autocast(input: Tensor) -> AbstractContextManager[Any]:  # noqa: A002
    """Return a context that turns autocast off; the meta device does not have autocast."""
    if input.is_meta:
        return nullcontext()
    return torch.autocast(input.device.type, enabled=False)


def lltm_reference(
    input: Tensor,  # noqa: A002
    weights: Tensor,
    bias: Tensor,
    old_h: Tensor,
    old_cell: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the next (h, cell) of an LLTM cell, as ``lltm`` does, in plain PyTorch.

    This is an LSTM cell without a forget gate, whose candidate passes through an ELU. The rows
    of ``weights`` are those of the input gate, the output gate and the candidate.
    """
    gates = F.linear(torch.cat([old_h, input], dim=1), weights, bias)
    input_gate, output_gate, candidate = gates.chunk(3, dim=1)
    new_cell = old_cell + F.elu(candidate) * torch.sigmoid(input_gate)
    new_h = torch.tanh(new_cell) * torch.sigmoid(output_gate)
    return new_h, new_cell


class LLTM(nn.Module):
    """A recurrent cell like the LSTM without a forget gate, computed by one fused operator.

    Names, shapes and initialisation of the parameters are those of the tutorial, so that its
    state dicts can be loaded. A bias that was saved with shape (1, 3 * state_size) must be
    flattened first.

    Examples:
        >>> cell = LLTM(input_features=32, state_size=128)
        >>> h, c = cell(torch.randn(16, 32), (torch.zeros(16, 128), torch.zeros(16, 128)))

    Attributes:
        input_features: the size of an input, at least 0.
        state_size: the size of h and of the cell state, at least 1.
        weights: shape (3 * state_size, state_size + input_features), as ``lltm`` takes them.
        bias: shape (3 * state_size,), in the order of the rows of the weights.
    """

    def __init__(
        self,
        input_features: int,
        state_size: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Draw the parameters uniformly between -1 / sqrt(state_size) and 1 / sqrt(state_size).

        Args:
            input_features: the size of an input.
            state_size: the size of h and of the cell state.
            device: the device of the parameters.
            dtype: the dtype of the parameters.
        """
        super().__init__()
        self.input_features = input_features
        self.state_size = state_size
        # The rows are those of two gates and of the candidate for the new cell state.
        rows = 3 * state_size
        columns = state_size + input_features
        self.weights = nn.Parameter(torch.empty(rows, columns, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(rows, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and bias again."""
        bound = 1 / math.sqrt(self.state_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, input: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:  # noqa: A002
        """Return the next state (h, cell) from an input and a state, as ``lltm`` does."""
        return lltm(input, self.weights, self.bias, *state)

    def extra_repr(self) -> str:
        """Return the text that print shows between the module's parentheses."""
        return f"input_features={self.input_features}, state_size={self.state_size}"


def _setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    input, weights, bias, old_h, old_cell = inputs  # noqa: A001
    _, new_cell, gates = output
    ctx.mark_non_differentiable(gates)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(input, weights, old_h, new_cell, gates, bias, old_cell)


def _backward(
    ctx: Any, grad_h: Tensor | None, grad_cell: Tensor | None, _grad_gates: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Return the gradients of input, weights, bias, old_h and old_cell.

    A gradient that is not needed is None.

    Args:
        ctx: the autograd context, with the tensors that the forward pass saved.
        grad_h: the gradient of new_h; None means zeros.
        grad_cell: the gradient of new_cell; None means zeros.
        _grad_gates: unused, because the third output, the gates, is not differentiable.
    """
    # They are read once, because torch.utils.checkpoint allows no second time.
    input, weights, old_h, new_cell, gates, bias, old_cell = ctx.saved_tensors  # noqa: A001
    if torch.is_grad_enabled():
        # create_graph=True: the gradients themselves must be differentiable.
        if grad_h is None:
            grad_h = torch.zeros_like(new_cell)
        if grad_cell is None:
            grad_cell = torch.zeros_like(new_cell)
        inputs = input, weights, bias, old_h, old_cell
        gradients = _differentiate_reference(inputs, (grad_h, grad_cell))
    else:
        needs_input, needs_weights, needs_bias, needs_old_h, _ = ctx.needs_input_grad
        gradients = torch.ops.cem_tetris.lltm_backward.default(
            grad_h,
            grad_cell,
            input,
            weights,
            old_h,
            new_cell,
            gates,
            needs_input,
            needs_weights or needs_bias,
            needs_old_h,
        )

    # Both branches may have computed gradients that are not needed.
    pairs = zip(gradients, ctx.needs_input_grad, strict=True)
    return tuple(gradient if is_needed else None for gradient, is_needed in pairs)


def _differentiate_reference(
    inputs: tuple[Tensor, ...], output_gradients: tuple[Tensor, Tensor]
) -> Any:
    """Return what `_backward` returns, computed in plain PyTorch, with all gradients.

    These gradients are differentiable. Those of the operator ``lltm_backward`` are not.
    """
    vjp: Any = torch.func.vjp
    with _without_autocast(inputs[0]):
        _, pull_back = vjp(lltm_reference, *inputs)
        return pull_back(output_gradients)


class _Cell(torch.autograd.Function):
    """The operator and its derivative as an autograd.Function."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Any:
        output = torch.ops.cem_tetris.lltm_forward.default(*inputs)
        _setup_context(ctx, inputs, output)
        return output

    backward = staticmethod(_backward)


_run_with_autograd: Any = _Cell.apply  # torch 2.13 does not annotate it


def _fake_forward(*arguments: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return uninitialised new_h, new_cell and gates."""
    like = arguments[0]
    batch, states = arguments[3].shape  # the shape of old_h
    return (
        like.new_empty(batch, states),
        like.new_empty(batch, states),
        like.new_empty(batch, 3 * states),
    )


def _fake_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Return uninitialised results of ``lltm_backward``, of the right shapes and dtype.

    They are the gradients of input, weights, bias, old_h and old_cell. A gradient that is not
    needed is empty; the gradient of old_cell is always computed.
    """
    _, _, input, weights, old_h, _, _, *needs = arguments  # noqa: A001
    needs_input, needs_parameters, needs_old_h = needs

    def new(shape: Sequence[int], is_needed: bool) -> Any:
        return input.new_empty(shape if is_needed else (0,))

    return (
        new(input.shape, needs_input),
        new(weights.shape, needs_parameters),
        new(weights.shape[:1], needs_parameters),
        new(old_h.shape, needs_old_h),
        new(old_h.shape, True),
    )


_LIBRARY = Library(
    "lltm",
    {"lltm": _fake_forward, "lltm_forward": _fake_forward, "lltm_backward": _fake_backward},
    {"lltm": Gradient(_backward, _setup_context)},
)
