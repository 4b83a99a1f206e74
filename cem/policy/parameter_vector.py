"""The parameters of a module as a vector, and a population of modules evaluated in one call."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap


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

    Tied parameters are in the vector once. Frozen parameters, with ``requires_grad`` False, and
    buffers are not: they are the same for all modules of a population.

    Attributes:
        module: The module itself, not a copy.
        names: The names of its parameters in the vector.
        dim: The length of the vector.
    """

    def __init__(self, module: nn.Module) -> None:
        """Set the module, which has at least one trainable parameter."""
        self.module = module
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.names = tuple(name for name, _ in named)
        self._sizes = [parameter.numel() for _, parameter in named]
        self.dim = sum(self._sizes)

    @property
    def vector(self) -> Tensor:
        """The parameters as a new tensor, shape (dim,), of their device and widest dtype."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self._parameters()])

    @torch.no_grad()
    def write(self, vector: Any) -> None:
        """Copy a vector, a tensor or an array of shape (dim,), into the module."""
        parts = self._split(torch.as_tensor(vector)[None])
        for parameter, part in zip(self._parameters(), parts, strict=True):
            parameter.copy_(part[0])

    def population(self, candidates: Any, in_dims: int | None = None) -> Callable[..., Tensor]:
        """Return a function that calls the modules of all candidates at once.

        It is ``torch.func.vmap`` of the module. The module must not change its buffers, as
        batch normalisation does in training: call ``eval()`` first.

        Args:
            candidates: Shape (N, dim), a tensor or an array.
            in_dims: None: all modules get the same inputs, (B, ...); 0: each has its own,
                (N, B, ...).

        Returns:
            A function from inputs to outputs of shape (N, B, ...).
        """
        parts = dict(zip(self.names, self._split(torch.as_tensor(candidates)), strict=True))

        def call(parameters: dict[str, Tensor], inputs: tuple[Any, ...]) -> Any:
            return functional_call(self.module, parameters, inputs)

        mapped = vmap(call, in_dims=(0, in_dims), randomness="different")
        return lambda *inputs: mapped(parts, inputs)

    def _parameters(self) -> list[nn.Parameter]:
        return [self.module.get_parameter(name) for name in self.names]

    def _split(self, candidates: Tensor) -> list[Tensor]:
        """Return the parameters of candidates, each of shape (N, ...)."""
        if candidates.dim() != 2 or candidates.shape[1] != self.dim:
            got = tuple(candidates.shape)
            raise ValueError(f"expected candidates of shape (N, {self.dim}), got {got}")
        columns = candidates.split(self._sizes, dim=1)
        return [
            part.reshape(-1, *parameter.shape).to(parameter.device, parameter.dtype)
            for part, parameter in zip(columns, self._parameters(), strict=True)
        ]
