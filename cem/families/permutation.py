"""Permutations, by the probability that an item follows another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.checks import as_int64
from cem.families.family import OperatorFamily
from kernels.ops.discrete.op import sample_permutation
from kernels.ops.discrete.reference import sample_permutation_reference
from kernels.support.checks import check_integer


@dataclass(frozen=True)
class Permutation(OperatorFamily):
    """Orders of the items 0 .. n - 1, n columns: node transitions without return.

    The table has n + 1 rows: the probabilities of the first item, and of the item after each. A step draws
    among the items that are left. De Boer et al. (2005), section 4.

    Examples:
        >>> import torch
        >>> from cem import CEMConfig, CrossEntropyMethod, Permutation
        >>> options = {"maximize": False, "config": CEMConfig.cma(families=[Permutation(5)]), "seed": 1}
        >>> search = CrossEntropyMethod(torch.zeros(0), 1.0, 50, **options)
        >>> for _ in range(20):
        ...     orders = search.ask()  # (50, 5)
        ...     search.tell(orders, orders.diff().square().sum(-1))
        >>> search.best_fitness  # 0 1 2 3 4, or backwards
        4.0

    Attributes:
        items: n, the number of items.
        smoothing: beta, the weight of a generation in (0, 1]. None: by the population. Less, with more
            generations, finds shorter routes.
    """

    items: int
    smoothing: float | None = None
    operators = (sample_permutation, sample_permutation_reference)
    more_rows = 1

    def __post_init__(self) -> None:
        """Check the number."""
        check_integer("items", self.items, 1)

    @property
    def columns(self) -> int:
        """The number of columns of a candidate."""
        return self.items

    @property
    def rows(self) -> tuple[int, int]:
        """The rows of the table, and the values in each."""
        return self.items + 1, self.items

    def value_of(self, numbers: list[float]) -> list[int]:
        """Return the order of a candidate as a parameter of ``cem.space``."""
        return [int(item) for item in numbers]

    def values_of(self, columns: Any) -> Any:
        """Return the orders of a population, int64, shape (N, n)."""
        return as_int64(columns)

    def number_of(self, name: str, order: Any) -> Any:
        """Return the columns for an order, the parameter of that name."""
        if sorted(order) != list(range(self.items)):
            expected = f"{name} as an order of 0 .. {self.items - 1}"
            raise ValueError(f"expected {expected}, got {order!r}")
        return order

    def start(self) -> Tensor:
        """Return the first table: all values as probable, on the CPU."""
        p = torch.full(self.rows, 1.0 / max(1, self.items - 1), dtype=torch.float64)
        p[0] = 1.0 / self.items
        p[1:].fill_diagonal_(0.0)
        return p.reshape(-1)

    def mode(self, table: Tensor) -> Tensor:
        """Return the likeliest candidate, shape (..., columns), step by step; waits for the device."""
        p = table.reshape(-1, *self.rows).cpu().numpy()  # of many steps: NumPy takes a tenth of torch's time
        problems, row, left = np.arange(len(p)), p[:, 0], np.ones((len(p), self.items), dtype=bool)
        found = np.empty((len(p), self.items), dtype=np.int64)
        for step in range(self.items):
            found[:, step] = item = np.where(left, row, -1.0).argmax(-1)
            left[problems, item] = False
            row = p[problems, item + 1]
        return torch.from_numpy(found).to(table.device).view(*table.shape[:-1], self.items)
