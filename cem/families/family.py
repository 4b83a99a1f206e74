"""A family of discrete distributions: how it draws columns of candidates, and its update.

The parameters of a distribution are a table of numbers in rows. ``Categorical`` and
``Permutation`` use the operators of `kernels/ops/discrete`, where their equations are. The
numbers in the table of your own family need not be probabilities: only the size of the table is
fixed. ``Family`` has an example.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from cem.core.checks import check_real
from kernels.ops.discrete.reference import random_words
from kernels.ops.discrete.tables import move_table as move_table


@runtime_checkable
class Family(Protocol):
    """A family of distributions: its initial table, and functions of a table.

    A family does not change. A table has shape (..., rows * values), float64; leading
    dimensions are independent problems. The methods use PyTorch on any device. In a CUDA graph
    or under ``torch.compile`` they must not branch on the values of tensors.

    Examples:
        A Markov chain, in which each state depends on the state before. ``move_table`` updates
        the table here, but any function of table, candidates and weights may do so:

        >>> import math, torch
        >>> from dataclasses import dataclass
        >>> from cem import CEMConfig, minimize
        >>> from cem.families import move_table, uniforms
        >>> @dataclass(frozen=True)
        ... class Chain:
        ...     columns: int
        ...     states: int
        ...
        ...     @property
        ...     def rows(self):  # of the first state, and after each state
        ...         return self.states + 1, self.states
        ...
        ...     def start(self):
        ...         size = math.prod(self.rows)
        ...         return torch.full((size,), 1 / self.states, dtype=torch.float64)
        ...
        ...     def walk(self, table, choose):
        ...         p, path = table.unflatten(-1, self.rows), []
        ...         row = p[..., :1, :]
        ...         for step in range(self.columns):
        ...             path.append(choose(row, step))  # (..., N, 1)
        ...             row = p[..., 1:, :].take_along_dim(path[-1], dim=-2)
        ...         return torch.cat(path, dim=-1)
        ...
        ...     def sample(self, table, size, *, seed, generation, **_):
        ...         u = uniforms(seed, generation, size, self.columns).split(1, dim=-1)
        ...         def choose(p, step):
        ...             return (p.cumsum(-1)[..., :-1] <= u[step]).sum(-1, keepdim=True)
        ...         return self.walk(table, choose)
        ...
        ...     def mode(self, table):
        ...         return self.walk(table, lambda p, _: p.argmax(-1, keepdim=True)).squeeze(-2)
        ...
        ...     def spread(self, table):
        ...         doubt = 1 - table.unflatten(-1, self.rows).amax(-1)
        ...         return doubt.mean(-1, keepdim=True).expand(*table.shape[:-1], self.columns)
        ...
        ...     def update(self, table, candidates, weights):
        ...         options = {"rows": self.rows, "is_transition": True}
        ...         return move_table(table, candidates, weights, **options)
        >>> def breaks(x):  # of the cycle 0 1 2 0 1 2 ..., to be ended in 2
        ...     return ((x[:, 1:] - x[:, :-1] - 1) % 3 != 0).sum(-1) + (x[:, -1] != 2)
        >>> config = CEMConfig.cma(families=[Chain(7, 3)])
        >>> options = {"budget": 2000, "target": 0, "seed": 1}
        >>> minimize(breaks, torch.zeros(0), 1.0, config=config, **options).x
        tensor([2., 0., 1., 2., 0., 1., 2.])
    """

    @property
    def columns(self) -> int:
        """The number of columns of a candidate."""

    @property
    def rows(self) -> tuple[int, int]:
        """The shape of the table: the number of rows, and the number of values in a row."""

    def start(self) -> Tensor:
        """Return the initial table, shape (rows * values,), on the CPU."""

    def mode(self, table: Tensor) -> Tensor:
        """Return the most probable candidate, shape (..., columns)."""

    def spread(self, table: Tensor) -> Tensor:
        """Return how uncertain each column is, shape (..., columns); 0 means certain."""

    def sample(
        self,
        table: Tensor,
        size: int,
        *,
        seed: Tensor,
        generation: Tensor,
        dtype: torch.dtype,
        backend: str,
    ) -> Tensor:
        """Return candidates, integers in any dtype, shape (..., size, columns).

        They are a function of seed and generation, as ``uniforms`` is. The first candidates do
        not depend on ``size``.

        Args:
            table: The table, shape (..., rows * values).
            size: The number of candidates.
            seed: The seeds of the problems, shape (...), int64.
            generation: The generation, shape (), int64.
            dtype: The dtype of the search.
            backend: The backend of the search; "torch" means that no operator may be used.
        """

    def update(self, table: Tensor, candidates: Tensor, weights: Tensor) -> Tensor:
        """Return the next table.

        If every candidate has failed, the search keeps the old table and ignores the result.

        Args:
            table: The table, shape (..., rows * values).
            candidates: The candidates, shape (..., N, columns), int64.
            weights: Their weights by rank, shape (..., N), float64. The weights of the better
                half sum to 1, or to less if candidates on both sides of the middle are equally
                good. Those of the worse half are the same with the opposite sign. So
                ``table + beta * (weights * f(x)).sum()`` moves the table towards the better
                half and away from the worse half.
        """


def uniforms(seed: Tensor, generation: Tensor, size: int, count: int) -> Tensor:
    """Return uniform numbers in [0, 1) for a generation, shape (..., size, count), float64.

    They are the same on every processor. A number depends neither on ``size`` nor on ``count``.
    """
    words = random_words(seed, generation, size, count, is_permutation=False)
    # A double has 53 bits, so the upper 53 of 64 bits are used. The mask removes the copies of
    # the sign bit that the shift inserts.
    return ((words >> 11) & ((1 << 53) - 1)).double() * 2.0**-53


class OperatorFamily:
    """What ``Categorical`` and ``Permutation`` share: operators draw and update the table.

    Attributes:
        operators: The operator that draws, and its reference in PyTorch.
        more_rows: The number of rows of the table beyond one per column: 1 if the rows are
            transitions from one column to the next, otherwise 0.
    """

    operators: ClassVar[tuple[Callable[..., Tensor], Callable[..., Tensor]]]
    more_rows: ClassVar[int]

    def __post_init__(self: Any) -> None:
        """Check the weight of a generation: 0 or NaN would not move the table, in silence."""
        if self.smoothing is not None:
            check_real("smoothing", self.smoothing, 0.0, 1.0, open_low=True)

    def spread(self: Any, table: Tensor) -> Tensor:
        """Return the probability of all values but the most probable, shape (..., columns)."""
        greatest: Tensor = table.unflatten(-1, self.rows).amax(-1)
        return 1 - greatest[..., self.more_rows :]

    def sample(self: Any, table: Tensor, size: int, *, backend: str, **noise: Any) -> Tensor:
        """Return candidates, shape (..., size, columns)."""
        # The second function is the reference in PyTorch.
        draw = self.operators[backend == "torch"]
        drawn: Tensor = draw(table.unflatten(-1, self.rows), size, **noise)
        return drawn

    def update(self: Any, table: Tensor, candidates: Tensor, weights: Tensor) -> Tensor:
        """Return the next table, by the equation of ``update_tables``."""
        options = {"is_transition": self.more_rows == 1, "beta": self.smoothing}
        return move_table(table, candidates, weights, rows=self.rows, **options)
