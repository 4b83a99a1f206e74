"""Permutations, described by the probabilities that one item follows another."""

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
    """Orders of the items 0 .. n - 1, in n columns.

    The table has n + 1 rows of probabilities: one row for the first item, and for each item a
    row for the item that follows it. Every step draws one of the remaining items. These are the
    node transitions of de Boer et al. (2005), section 4.

    Examples:
        >>> import torch
        >>> from cem import CEMConfig, CrossEntropyMethod, Permutation
        >>> config = CEMConfig.cma(families=[Permutation(5)])
        >>> options = {"maximize": False, "config": config, "seed": 1}
        >>> search = CrossEntropyMethod(torch.zeros(0), 1.0, 50, **options)
        >>> for _ in range(20):
        ...     orders = search.ask()  # (50, 5)
        ...     search.tell(orders, orders.diff().square().sum(-1))
        >>> search.best_fitness  # 0 1 2 3 4, or backwards
        4.0

    Attributes:
        items: n, the number of items.
        smoothing: beta in (0, 1], the weight of a generation; see ``kernels.ops.discrete``.
            With a smaller weight the search needs more generations and finds shorter routes.
            None: the weight depends on the size of the population.
    """

    items: int
    smoothing: float | None = None
    operators = (sample_permutation, sample_permutation_reference)
    more_rows = 1

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        object.__setattr__(self, "items", check_integer("items", self.items, 1))

    @property
    def columns(self) -> int:
        """The number of columns of a candidate."""
        return self.items

    @property
    def rows(self) -> tuple[int, int]:
        """The number of rows of the table, and the number of values in a row."""
        return self.items + 1, self.items

    def value_of(self, numbers: list[float]) -> list[int]:
        """Return the order of a candidate as a parameter of ``cem.space``."""
        return [int(item) for item in numbers]

    def values_of(self, columns: Any) -> Any:
        """Return the orders of a population, int64, shape (N, n)."""
        return as_int64(columns)

    def number_of(self, name: str, order: Any) -> Any:
        """Return the columns of an order; ``name`` is the name of the parameter in errors."""
        if sorted(order) != list(range(self.items)):
            raise ValueError(
                f"expected {name} as an order of 0 .. {self.items - 1}, got {order!r}"
            )
        return order

    def start(self) -> Tensor:
        """Return the initial table, on the CPU: all items are equally probable.

        No item follows itself.
        """
        share = 1.0 / max(1, self.items - 1)
        table = torch.full(self.rows, share, dtype=torch.float64, device="cpu")
        table[0] = 1.0 / self.items
        table[1:].fill_diagonal_(0.0)
        return table.reshape(-1)

    def mode(self, table: Tensor) -> Tensor:
        """Return the order that takes the most probable remaining item in every step.

        The method waits for the device, because it computes on the host.

        Args:
            table: The probabilities, shape (..., (n + 1) * n): n + 1 rows of n items. Row 0 is
                for the first item, and row i + 1 for the item that follows item i. Leading
                dimensions are independent problems.

        Returns:
            The order of each problem, shape (..., n), int64.
        """
        # NumPy is ten times as fast as torch for many small steps.
        tables = table.reshape(-1, *self.rows).cpu().numpy()
        num_problems = len(tables)
        problems = np.arange(num_problems)
        is_remaining = np.ones((num_problems, self.items), dtype=bool)
        orders = np.empty((num_problems, self.items), dtype=np.int64)
        # The probabilities of the next item of each problem, shape (num_problems, n).
        row = tables[:, 0]
        for step in range(self.items):
            # An item that has been taken gets -1, less than any probability.
            item = np.where(is_remaining, row, -1.0).argmax(-1)
            orders[:, step] = item
            is_remaining[problems, item] = False
            row = tables[problems, item + 1]
        return torch.from_numpy(orders).to(table.device).view(*table.shape[:-1], self.items)
