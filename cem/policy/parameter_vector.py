"""The parameters of a module as a vector, and a population of modules evaluated in one call."""

from __future__ import annotations

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
        ...     return (parameters.population(candidates)(x) - x.sum(1, True)).square().mean((1, 2))
        >>> parameters.write(minimize(loss, parameters.vector, 1.0, budget=2000, seed=1).x)
        >>> bool((net.weight - 1).abs().max() < 1e-3)
        True

    Tied parameters stand in it once. Frozen ones, with ``requires_grad`` False, do not: they stay as they
    are, the same for all modules of a population, as buffers do.

    Attributes:
        module: The module itself, no copy.
        names: The names of its parameters in the vector.
        dim: The length of the vector.
    """

    def __init__(self, module: nn.Module) -> None:
        """Look at a module with at least one trainable parameter."""
        self.module = module
        trained = {name: each for name, each in module.named_parameters() if each.requires_grad}
        self.names = tuple(trained)
        self._sizes = [each.numel() for each in trained.values()]
        self.dim = sum(self._sizes)

    @property
    def vector(self) -> Tensor:
        """A new tensor, shape (dim,), of the device and the widest dtype of the parameters."""
        return torch.cat([each.detach().reshape(-1) for each in self._parameters()])

    @torch.no_grad()
    def write(self, vector: Any) -> None:
        """Copy a vector, shape (dim,), tensor or array, into the module; to its dtypes and device."""
        parts = self._split(torch.as_tensor(vector)[None])
        for parameter, part in zip(self._parameters(), parts, strict=True):
            parameter.copy_(part[0])

    def population(self, candidates: Any, in_dims: int | None = None) -> Callable[..., Tensor]:
        """Return the modules of candidates, shape (N, dim), as a function, ``torch.func.vmap`` of the module.

        It maps inputs to outputs (N, B, ...) without a loop over candidates. With ``in_dims`` None all get
        the same inputs, (B, ...); with 0 each has its own, (N, B, ...). The module must not change its
        buffers, as batch normalisation does in training: call ``eval()`` first.
        """
        parts = dict(zip(self.names, self._split(torch.as_tensor(candidates)), strict=True))

        def call(parameters: dict[str, Tensor], inputs: tuple[Any, ...]) -> Any:
            return functional_call(self.module, parameters, inputs)

        mapped = vmap(call, in_dims=(0, in_dims), randomness="different")
        return lambda *inputs: mapped(parts, inputs)

    def _parameters(self) -> list[nn.Parameter]:
        return [self.module.get_parameter(name) for name in self.names]

    def _split(self, candidates: Tensor) -> list[Tensor]:
        """Return the parameters of candidates, each of shape (N, ...), of the module's dtype and device."""
        if candidates.dim() != 2 or candidates.shape[1] != self.dim:
            got = tuple(candidates.shape)
            raise ValueError(f"expected candidates of shape (N, {self.dim}), got {got}")
        pairs = zip(candidates.split(self._sizes, dim=1), self._parameters(), strict=True)
        return [part.reshape(-1, *p.shape).to(p.device, p.dtype) for part, p in pairs]
