"""Categorical distributions of independent parameters, and the special case of two values."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cem.families.family import OperatorFamily
from kernels.ops.discrete.op import sample_categorical
from kernels.ops.discrete.reference import sample_categorical_reference


@dataclass(frozen=True)
class Categorical(OperatorFamily):
    """Parameters with the values 0 .. size - 1, one column each, and a probability per value.

    Examples:
        >>> import torch
        >>> from cem import CEMConfig, CrossEntropyMethod
        >>> from cem.families import Categorical
        >>> config = CEMConfig.cma(families=[Categorical((3, 10))])
        >>> options = {"maximize": False, "config": config, "seed": 1}
        >>> search = CrossEntropyMethod(torch.zeros(0), 1.0, 50, **options)
        >>> for _ in range(20):
        ...     x = search.ask()  # (50, 2)
        ...     search.tell(x, (x - torch.tensor([2, 7])).abs().sum(-1))
        >>> search.best
        tensor([2., 7.])

    Attributes:
        sizes: The number of values of each parameter, shape (V,).
        smoothing: beta in (0, 1], the weight of a generation; see ``kernels.ops.discrete``.
            None: the weight depends on the size of the population.
    """

    sizes: tuple[int, ...]
    smoothing: float | None = None
    operators = (sample_categorical, sample_categorical_reference)
    more_rows = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sizes", tuple(map(int, self.sizes)))
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(
                f"expected a number of values >= 1 for each parameter, got {self.sizes}"
            )

    @property
    def columns(self) -> int:
        """The number of columns of a candidate."""
        return len(self.sizes)

    @property
    def rows(self) -> tuple[int, int]:
        """The number of rows of the table, one per parameter, and of values in a row."""
        return len(self.sizes), max(self.sizes)

    def start(self) -> Tensor:
        """Return the initial table, on the CPU: all values are equally probable."""
        sizes = torch.tensor(self.sizes, device="cpu").unsqueeze(-1)
        is_value = torch.arange(self.rows[1], device="cpu") < sizes
        return torch.where(is_value, 1.0 / sizes.double(), 0.0).reshape(-1)

    def mode(self, table: Tensor) -> Tensor:
        """Return the most probable candidate, shape (..., columns)."""
        likeliest: Tensor = table.unflatten(-1, self.rows).argmax(-1)
        return likeliest


def Bernoulli(count: int, smoothing: float | None = None) -> Categorical:  # noqa: N802
    """Return a family of ``count`` parameters with the values 0 and 1.

    Examples:
        >>> from cem.families import Bernoulli
        >>> Bernoulli(3)
        Categorical(sizes=(2, 2, 2), smoothing=None)
    """
    return Categorical((2,) * count, smoothing)
