"""The parameters of a module as a vector, and the call of many such modules at once."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from cem.core.checks import to_tensor


class ParameterVector:
    """The trainable parameters of a module as one vector, in the order of ``named_parameters``.

    Examples:
        >>> import torch
        >>> from cem import ParameterVector, minimize
        >>> net, x = torch.nn.Linear(2, 1), torch.randn(50, 2)
        >>> parameters = ParameterVector(net)
        >>> def loss(candidates):  # (N, 3) -> (N,)
        ...     outputs = parameters.population(candidates)(x)
        ...     return (outputs - x.sum(1, True)).square().mean((1, 2))
        >>> parameters.write(minimize(loss, parameters.vector, 1.0, budget=2000, seed=1).x)
        >>> bool((net.weight - 1).abs().max() < 1e-3)
        True

    Tied parameters are in the vector once. Buffers and frozen parameters, whose
    ``requires_grad`` is False, are not in the vector: all modules of a population share them.

    Attributes:
        module: The module itself, not a copy.
        names: The names of its parameters in the vector.
        dim: The length of the vector.
    """

    def __init__(self, module: nn.Module) -> None:
        """Set the module, which must have at least one trainable parameter."""
        self.module = module
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.names = tuple(name for name, _ in named)
        self._sizes = [parameter.numel() for _, parameter in named]
        self.dim = sum(self._sizes)

    @property
    def vector(self) -> Tensor:
        """The parameters as a new tensor, shape (dim,), in the widest of their dtypes."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self._parameters()])

    @torch.no_grad()
    def write(self, vector: Any) -> None:
        """Copy a vector, a tensor or array of shape (dim,), into the module's parameters."""
        parts = self._split(to_tensor(vector)[None])
        for parameter, part in zip(self._parameters(), parts, strict=True):
            parameter.copy_(part[0])

    def population(self, candidates: Any, in_dims: int | None = None) -> Callable[..., Tensor]:
        """Return a function that calls the modules of all candidates at once.

        The function is ``torch.func.vmap`` of the module. The module must not modify its
        buffers, as batch normalisation does in training. Call ``eval()`` of such a module
        first. ``vmap`` has no rule for ``nn.LSTM``, ``nn.LSTMCell``, ``nn.GRU`` and ``nn.RNN``;
        a loop over ``nn.GRUCell`` works.

        Args:
            candidates: The candidates, a tensor or array of shape (N, dim).
            in_dims: None: all modules get the same inputs, shape (B, ...). 0: each module gets
                its own inputs, shape (N, B, ...).

        Returns:
            A function of the inputs that returns outputs of shape (N, B, ...).
        """
        split = self._split(to_tensor(candidates))
        part_of = dict(zip(self._parameters(), split, strict=True))
        # A tied parameter has several names. But a submodule that is used twice stands here
        # once: `functional_call` does not restore what it has replaced twice.
        parts = {
            name: part_of[parameter]
            for prefix, module in self.module.named_modules()
            for name, parameter in module.named_parameters(
                prefix, recurse=False, remove_duplicate=False
            )
            if parameter in part_of
        }

        def call(parameters: dict[str, Tensor], inputs: tuple[Any, ...]) -> Any:
            return functional_call(self.module, parameters, inputs, tie_weights=False)

        mapped = vmap(call, in_dims=(0, in_dims), randomness="different")
        return lambda *inputs: mapped(parts, inputs)

    def _parameters(self) -> list[nn.Parameter]:
        return [self.module.get_parameter(name) for name in self.names]

    def _split(self, candidates: Tensor) -> list[Tensor]:
        """Return the parameters of N candidates, each a tensor of shape (N, ...)."""
        if candidates.dim() != 2 or candidates.shape[1] != self.dim:
            got = tuple(candidates.shape)
            raise ValueError(f"expected candidates of shape (N, {self.dim}), got {got}")
        columns = candidates.split(self._sizes, dim=1)
        return [
            part.reshape(-1, *parameter.shape).to(parameter.device, parameter.dtype)
            for part, parameter in zip(columns, self._parameters(), strict=True)
        ]
