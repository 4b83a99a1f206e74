"""The LLTM cell as a module, with the parameters that the PyTorch tutorial gives it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from kernels.ops.lltm.op import lltm


class LLTM(nn.Module):
    """A recurrent cell like the LSTM without a forget gate, its state in one fused operator.

    The parameters are named, shaped and drawn as in the tutorial "Custom C++ and CUDA Extensions"
    (Goldsborough), so that its state dicts load; a bias saved as (1, 3 * state_size) has to be flattened.

    Examples:
        >>> cell = LLTM(input_features=32, state_size=128)
        >>> h, c = cell(torch.randn(16, 32), (torch.zeros(16, 128), torch.zeros(16, 128)))

    Attributes:
        input_features: the size of an input.
        state_size: the size of h, and of the cell state.
        weights: (3 * state_size, state_size + input_features); the rows of the input gate, the output gate
            and the candidate, in this order; the columns of h before those of the input.
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
        """Make a cell with parameters drawn from the uniform distribution on +-1 / sqrt(state_size).

        Args:
            input_features: the size of an input; at least 0.
            state_size: the size of h, and of the cell state; at least 1.
            device: where the parameters are.
            dtype: float32, float64, float16 or bfloat16.

        Raises:
            ValueError: a size is too small.
        """
        super().__init__()
        if input_features < 0 or state_size < 1:
            raise ValueError(
                f"expected input_features >= 0 and state_size >= 1, got {input_features} and {state_size}"
            )
        self.input_features = input_features
        self.state_size = state_size
        rows, columns = 3 * state_size, input_features + state_size
        self.weights = nn.Parameter(torch.empty(rows, columns, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(rows, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and bias again."""
        bound = 1 / math.sqrt(self.state_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, input: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:  # noqa: A002
        """Take one step.

        Args:
            input: (batch, input_features).
            state: h and the cell state, each (batch, state_size).

        Returns:
            The next h and cell state, new tensors.

        Raises:
            ValueError: a size or a device does not fit.
            TypeError: a type does not fit.
        """
        return lltm(input, self.weights, self.bias, *state)

    def extra_repr(self) -> str:
        """Return what print shows in the module's brackets."""
        return f"input_features={self.input_features}, state_size={self.state_size}"
