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

from kernels.ops.library import Gradient, Library, is_transformed, public_error


def lltm(
    input: Tensor,  # noqa: A002
    weights: Tensor,
    bias: Tensor,
    old_h: Tensor,
    old_cell: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the next state (h, cell) of an LLTM cell, an LSTM cell without a forget gate.

    It can be differentiated with respect to every argument, any number of times. All tensors
    are on one device and of one type: float32, float64, float16 or bfloat16. The 16-bit types
    are multiplied as torch multiplies them; everything else is computed in float32.

    Autocast changes neither results nor first derivatives, except that it accepts tensors of
    several types up to float32, and computes in float32. Higher derivatives and ``torch.func``
    follow autocast as other operators of torch do.

    Args:
        input: (batch, inputs).
        weights: (3 * states, states + inputs): rows for the input gate, the output gate and the
            candidate; the columns of old_h come first.
        bias: (3 * states,).
        old_h: (batch, states).
        old_cell: (batch, states).

    Returns:
        new_h and new_cell, (batch, states) each.

    Raises:
        ValueError: a size or a device does not fit.
        TypeError: an argument is no tensor, or a type does not fit.
        kernels.BuildError: the operator has to be built, and cannot be.
    """
    # Only plain PyTorch supports forward-mode AD and torch.func.
    if is_transformed():
        with _without_autocast(input):
            return lltm_reference(input, weights, bias, old_h, old_cell)
    try:
        _LIBRARY.ensure(input)
        operators = torch.ops.cem_tetris
        wants_gradient = (
            weights.requires_grad
            or bias.requires_grad
            or old_h.requires_grad
            or old_cell.requires_grad
            or input.requires_grad
        )
        is_recorded = wants_gradient and torch.is_grad_enabled()
        # torch.compile and autocast need the operator for which their rules are registered.
        if torch.compiler.is_compiling() or (
            is_recorded and torch._C._is_any_autocast_enabled()
        ):
            run = operators.lltm.default
        elif is_recorded:
            # This autograd.Function runs much less Python than the operator `lltm`, whose
            # derivative is registered with torch.library.
            run = _record
        else:
            run = operators.lltm_forward.default
        new_h, new_cell, _gates = run(input, weights, bias, old_h, old_cell)
        return new_h, new_cell
    except (AttributeError, RuntimeError) as error:
        # A check in C++ has failed: raise it as a TypeError or a ValueError.
        raise public_error(error) from None


def _without_autocast(input: Tensor) -> AbstractContextManager[Any]:  # noqa: A002
    """Return a context without autocast, which does not know the meta device."""
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

    It is an LSTM cell without a forget gate, whose candidate goes through an ELU. The rows of
    ``weights`` are the input gate, the output gate and the candidate.
    """
    gates = F.linear(torch.cat([old_h, input], dim=1), weights, bias)
    input_gate, output_gate, candidate = gates.chunk(3, dim=1)
    new_cell = old_cell + F.elu(candidate) * torch.sigmoid(input_gate)
    new_h = torch.tanh(new_cell) * torch.sigmoid(output_gate)
    return new_h, new_cell


class LLTM(nn.Module):
    """A recurrent cell like the LSTM without a forget gate, its state in one fused operator.

    The parameters are named, shaped and drawn as in the tutorial, so that its state dicts load;
    a bias that was saved as (1, 3 * state_size) has to be flattened.

    Examples:
        >>> cell = LLTM(input_features=32, state_size=128)
        >>> h, c = cell(torch.randn(16, 32), (torch.zeros(16, 128), torch.zeros(16, 128)))

    Attributes:
        input_features: the size of an input; at least 0.
        state_size: the size of h, and of the cell state; at least 1.
        weights: (3 * state_size, state_size + input_features), as those of ``lltm``.
        bias: (3 * state_size,), in the order of the rows.
    """

    def __init__(
        self,
        input_features: int,
        state_size: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Draw the parameters from the uniform distribution on +-1 / sqrt(state_size)."""
        super().__init__()
        self.input_features = input_features
        self.state_size = state_size
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
        """Return what print shows in the module's brackets."""
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
    """Return the gradients of input, weights, bias, old_h and old_cell, None where not needed.

    The arguments are the gradients of the forward pass's outputs (new_h, new_cell, gates); a
    gradient of zeros may be None, and the gates have none.
    """
    input, weights, old_h, new_cell, gates, bias, old_cell = ctx.saved_tensors  # noqa: A001
    if torch.is_grad_enabled():
        # With create_graph=True the gradients must be differentiable themselves. Those of the
        # operator are not, those of the plain PyTorch reference are.
        if grad_h is None:
            grad_h = torch.zeros_like(new_cell)
        if grad_cell is None:
            grad_cell = torch.zeros_like(new_cell)
        vjp: Any = torch.func.vjp
        with _without_autocast(input):
            _, pull_back = vjp(lltm_reference, input, weights, bias, old_h, old_cell)
            gradients = pull_back((grad_h, grad_cell))
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
    pairs = zip(gradients, ctx.needs_input_grad, strict=True)
    return tuple(gradient if is_needed else None for gradient, is_needed in pairs)


class _Cell(torch.autograd.Function):
    """The operator and its derivative, recorded without ``torch.library``."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Any:
        output = torch.ops.cem_tetris.lltm_forward.default(*inputs)
        _setup_context(ctx, inputs, output)
        return output

    backward = staticmethod(_backward)


_record: Any = _Cell.apply  # torch 2.13 does not annotate it


def _fake_forward(*arguments: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    like, (batch, states) = arguments[0], arguments[3].shape
    return (
        like.new_empty(batch, states),
        like.new_empty(batch, states),
        like.new_empty(batch, 3 * states),
    )


def _fake_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Return unset results of ``lltm_backward``, with the right shapes, dtype and device.

    They are the gradients of input, weights, bias, old_h and old_cell. One that is not needed
    is empty; that of old_cell always is computed.
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
