"""Weights as integers: what a controller plays with, and how the engines get them.

Features are integers or halves of them. If weights are integers, too, a score is the same in
whatever order it is added up, and every engine can choose its own order. A controller's choices
do not depend on the length of its weight vector, so weights may be multiples of any step. The
step is a power of two that leaves `BITS` bits and a sign to the greatest weight: a vector twice
as long has the same quantized weights.

The engines look the features of steps up in tables of weights: see `engine_weights`.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from tetris.game.features import DENOMINATORS, STEP_CLASSES

BITS = 15
"""Bits of the greatest weight: products of two such numbers and a sign fit into a score."""

_SMALLEST = 2.0**-200  # Below any weight but 0: float32 has none below 2^-149.
_MANTISSA_BITS = 52  # In a float64 the exponent is above them.

# The layout of the engine's tables: TABLE_SLOTS, FIRST_COLUMN and 1 << CLASS_BITS of
# tetris/engine.
_SLOTS = 16
_FIRST_COLUMN = 2
_CLASSES = 8
_HEIGHTS = 32
_LEVEL = STEP_CLASSES // 2


@dataclass(frozen=True)
class Table:
    """The features of a family, which share a table of weights in the engine.

    Attributes:
        family: The family's name, which the features' names begin with.
        sizes: The dimensions of the table beside the column.
        offset: The table's column is that of a feature plus this.
    """

    family: str
    sizes: tuple[int, ...]
    offset: int = 0

    @property
    def form(self) -> re.Pattern[str]:
        """Matches the names of the features; its groups are column and classes."""
        return re.compile(self.family + r"_(\d+)" * (1 + len(self.sizes)))

    def positions(self, heights: Tensor) -> Tensor:
        """Return where the entries of boards lie in the flattened table.

        ``heights`` are those of columns, shape (..., width), int64. The result has one entry
        for each column at which a feature of the family begins: shape (..., entries).
        """
        steps = (heights[..., 1:] - heights[..., :-1]).clamp(-_LEVEL, _LEVEL) + _LEVEL
        if self.sizes[0] == _HEIGHTS:
            parts = [heights, steps]
        else:
            parts = [steps[..., beyond:] for beyond in range(len(self.sizes))]
        count = parts[-1].shape[-1]
        position = torch.arange(count, device=heights.device) + _FIRST_COLUMN + self.offset
        for size, part in zip(self.sizes, parts, strict=True):
            position = position * size + part[..., :count]
        return position

    @property
    def engine_feature(self) -> str:
        """The engine's feature that adds the entries of the table."""
        return f"{self.family}_features"


TABLES = (
    Table("step", (_CLASSES,)),
    Table("step_pair", (_CLASSES, _CLASSES)),
    Table("step_triple", (_CLASSES, _CLASSES, _CLASSES), offset=1),
    Table("height_step", (_HEIGHTS, _CLASSES)),
)
"""In the order in which they follow the other weights."""


def quantized_weights(weights: Tensor, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return weights as integers, and the step: the weight that the integer 1 stands for.

    A weight is rounded to the nearest ``integer * step * denominator`` of its feature, a tie to
    the even integer, within `BITS` bits; NaN counts as 0. Only IEEE operations are used, so
    that every processor has the same result.

    Args:
        weights: Shape (..., features).
        names: The names of the features.

    Returns:
        Integers, int32, shape (..., features), and steps, float64, shape (..., 1).
    """
    weights = torch.nan_to_num(weights.double() / _denominators(names, weights.device))
    greatest = weights.abs().amax(-1, keepdim=True).clamp(min=_SMALLEST)
    # The step is a power of two: 2^(1 - BITS) times the power of two below the greatest weight.
    # A power of two is computed from the bits of a float64, whose upper bits are the exponent.
    exponent = greatest.view(torch.int64) >> _MANTISSA_BITS
    step = ((exponent - (BITS - 1)) << _MANTISSA_BITS).view(torch.float64)
    limit = (1 << BITS) - 1
    return (weights / step).round().clamp(-limit, limit).int(), step


def played_weights(weights: Tensor, names: Sequence[str]) -> Tensor:
    """Return weights rounded by `quantized_weights`, float64: weighted sums are exact."""
    integers, step = quantized_weights(weights, names)
    return integers * step * _denominators(names, weights.device)


def _denominators(names: Sequence[str], device: torch.device) -> Tensor:
    """Return for each feature the factor that makes its values integers: shape (features,)."""
    denominators = torch.ones(len(names), dtype=torch.float64, device=device)
    for index, name in enumerate(names):
        if name in DENOMINATORS:
            # An assignment would copy the number to a GPU, and wait for it.
            denominators[index].fill_(DENOMINATORS[name])
    return denominators


def engine_features(names: Sequence[str]) -> tuple[str, ...]:
    """Return the features that an engine is compiled with to play with a list of features.

    One feature of the engine, which looks a weight up in a table, replaces all features of
    steps that share this table. All other features stay.
    """
    others = list(names)
    tables = []
    for table in TABLES:
        form = table.form
        remaining = [name for name in others if not form.fullmatch(name)]
        if len(remaining) < len(others):
            tables.append(table.engine_feature)
        others = remaining
    return (*others, *tables)


def engine_weights(weights: Tensor, names: Sequence[str]) -> Tensor:
    """Return the quantized weights of a list of features in the layout of its engine.

    The result has shape (candidates, numbers), int32: first a number for each of
    `engine_features`, which is 0 for a table, then the tables. A table has an entry for every
    column and class of its step, or for every column and classes of its two steps; it is 0
    without such a feature.
    """
    integers, _ = quantized_weights(weights, names)
    indices = _weight_indices(tuple(names), integers.device)
    if indices is None:
        return integers
    zero = torch.zeros_like(integers[:, :1])
    return torch.cat([integers, zero], 1)[:, indices]


@lru_cache(maxsize=64)
def _weight_indices(names: tuple[str, ...], device: torch.device) -> Tensor | None:
    """Return where an engine's weights come from: indices into the weights of ``names``.

    The engine takes a weight for each of its own features, and then tables of weights. For each
    of these numbers the result, of one dimension, has the index of the feature whose weight it
    is. It is ``len(names)``, the position of an added zero, where there is no such feature.
    The result is None if the engine takes the weights as they are.
    """
    engine_names = engine_features(names)
    if engine_names == names:
        return None
    index_of = {name: index for index, name in enumerate(names)}
    zero = len(names)
    indices = [index_of.get(name, zero) for name in engine_names]
    for table in TABLES:
        if table.engine_feature in engine_names:
            indices += table_indices(table, index_of, zero)
    return torch.tensor(indices, device=device)


def table_indices(table: Table, index_of: dict[str, int], zero: int) -> list[int]:
    """Return for each entry of a table of weights the index of the entry's feature.

    A table has the dimensions column and ``table.sizes``; it is flattened in this order.

    Args:
        table: The table.
        index_of: The index of each feature by its name.
        zero: The index for entries without a feature.
    """
    form = table.form
    indices = [zero] * (_SLOTS * math.prod(table.sizes))
    for name, index in index_of.items():
        match = form.fullmatch(name)
        if match is not None:
            column, *classes = map(int, match.groups())
            position = _FIRST_COLUMN + column + table.offset
            for size, own_class in zip(table.sizes, classes, strict=True):
                position = position * size + own_class
            indices[position] = index
    return indices
