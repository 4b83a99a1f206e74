"""Rounds weights to integers, with which all engines compute the same scores.

Features are integers or halves of integers. If weights are integers, too, the order of addition
does not change a score, and every engine can choose its own order. A controller's choices do
not depend on the length of its weight vector, so its weights may be multiples of any step. The
step is a power of two, chosen so that the greatest weight has `BITS` bits and a sign. A vector
that is twice as long has the same quantized weights.

The weights inside of each hidden unit are rounded in the same way, with a step of their own.

The engines look up the weights of step features in tables: see `engine_weights`.
"""

import re
from functools import lru_cache

import torch
from torch import Tensor

from tetris.game.features import DENOMINATORS
from tetris.game.hidden_units import ACTIVATION_STEPS, WeightLayout, layout_of

BITS = 15
"""The bits of the greatest weight, without the sign. A score has 32 bits."""

UNIT_BITS = 7
"""The bits of the greatest weight inside of a hidden unit, without the sign."""

_SMALLEST = 2.0**-200  # Below any weight but 0: float32 has none below 2^-149.
_MANTISSA_BITS = 52  # In a float64 the exponent is above them.

# The layout of the engine's tables: TABLE_SLOTS, FIRST_COLUMN and 1 << CLASS_BITS of
# tetris/engine.
_SLOTS = 16
_FIRST_COLUMN = 2
_CLASSES = 8
_BYTES = 4  # A word of the engine has four weights of a unit.
_TABLES = (
    (re.compile(r"step_(\d+)_(\d+)"), "step_features_1"),
    (re.compile(r"step_pair_(\d+)_(\d+)_(\d+)"), "step_features_2"),
)
"""For each table: the names of the features in it, and the engine's feature that reads it."""


def quantized_weights(weights: Tensor, names: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """Return weights as integers, and the steps that turn the integers back into weights.

    A weight is rounded to the nearest ``integer * step * denominator``. Every weight vector has
    a step, a power of two. Every feature has a denominator: 2 if its values can be halves,
    otherwise 1. A tie goes to the even integer, and NaN counts as 0. The integer has `BITS`
    bits. Only IEEE operations are used, so every processor has the same result.

    The weights inside of a hidden unit have integers of `UNIT_BITS`, and the step with which
    the greatest of them is between 1/2 and 1, whatever their length.

    Args:
        weights: Shape (..., weights).
        names: The names of the weights.

    Returns:
        The integers, int32, shape (..., weights).
        The steps, float64, shape (..., 1), or (..., weights) with hidden units.
    """
    weights = torch.nan_to_num(weights.double() / _denominators(names, weights.device))
    layout = layout_of(names)
    if layout.units == 0:
        return _rounded(weights, BITS)
    # Round the weights inside of the units first. Then set them to 0, so that the step of the
    # other weights does not depend on them.
    inside = _by_unit(weights, layout)[..., :-1]
    integers_inside, _ = _rounded(inside, UNIT_BITS)
    inside.zero_()
    integers, step = _rounded(weights, BITS)
    steps = step.expand_as(weights).clone()
    _by_unit(integers, layout)[..., :-1].copy_(integers_inside)
    _by_unit(steps, layout)[..., :-1].fill_(2.0**-UNIT_BITS)
    return integers, steps


def _by_unit(values: Tensor, layout: WeightLayout) -> Tensor:
    """Return the values of the weights of hidden units, a view: (..., units, inputs + 2)."""
    by_unit: Tensor = values[..., len(layout.features) :].unflatten(-1, (layout.units, -1))
    return by_unit


def _rounded(weights: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Round weights to multiples of a step, so that the greatest one has so many bits.

    Return the integers, int32, in the shape of the weights, and the step of each vector,
    float64, shape (..., 1).
    """
    greatest = weights.abs().amax(-1, keepdim=True).clamp(min=_SMALLEST)
    # The step is 2^(1 - bits) times the greatest power of two that is not above the greatest
    # weight. The upper bits of a float64 are its exponent, so the step is computed from them.
    exponent = greatest.view(torch.int64) >> _MANTISSA_BITS
    step = ((exponent - (bits - 1)) << _MANTISSA_BITS).view(torch.float64)
    limit = (1 << bits) - 1
    return (weights / step).round().clamp(-limit, limit).int(), step


def played_weights(weights: Tensor, names: tuple[str, ...]) -> Tensor:
    """Return weights rounded by `quantized_weights`, float64. Weighted sums are then exact."""
    integers, step = quantized_weights(weights, names)
    return integers * step * _denominators(names, weights.device)


# It is cached, because the copy of a list to a GPU waits for the GPU.
@lru_cache(maxsize=64)
def _denominators(names: tuple[str, ...], device: torch.device) -> Tensor:
    """Return for each weight the factor that makes the values of its feature integers."""
    layout = layout_of(names)
    of_features = [DENOMINATORS.get(name, 1) for name in layout.features]
    of_inputs = [DENOMINATORS.get(name, 1) for name in layout.inputs]
    of_bias = 1
    of_unit = [*of_inputs, of_bias, ACTIVATION_STEPS]
    factors = of_features + of_unit * layout.units
    return torch.tensor(factors, dtype=torch.float64, device=device)


def engine_features(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the features that are compiled into the engine for a list of features.

    Step features share tables of weights. All features of a table are replaced by one feature
    of the engine, which looks up weights in the table, and all hidden units by one feature. All
    other features are kept.
    """
    features, _, units = layout_of(names)
    others = (name for name in features if not any(form.fullmatch(name) for form, _ in _TABLES))
    tables = (table for form, table in _TABLES if any(map(form.fullmatch, features)))
    hidden = (f"hidden_units_{units}",) if units else ()
    return (*others, *tables, *hidden)


def engine_weights(weights: Tensor, names: tuple[str, ...]) -> Tensor:
    """Return the quantized weights of a list of features in the layout of its engine.

    The result has the shape (candidates, numbers), int32. First there is a number for each of
    `engine_features`; for a feature that stands for others it is 0. The tables follow. A table
    has an entry for every column and every class of its step, or every pair of classes of its
    two steps. An entry is 0 if the list has no such feature. The hidden units are last, as
    tetris/engine/hidden_units.h says.
    """
    integers, _ = quantized_weights(weights, names)
    indices = _weight_indices(names, integers.device)
    if indices is None:
        return integers
    zero = torch.zeros_like(integers[:, :1])
    parts = [torch.cat([integers, zero], 1)[:, indices]]
    layout = layout_of(names)
    if layout.units:
        by_unit = _by_unit(integers, layout)
        padding = -(len(layout.inputs) + 1) % _BYTES
        inside = torch.nn.functional.pad(by_unit[..., :-1], (0, padding))
        # Without padding, a copy of a single unit would keep the strides of the view, which are
        # not whole words.
        rows = inside.to(torch.int8, memory_format=torch.contiguous_format)
        words = rows.view(torch.int32)  # Each word has four bytes.
        parts.append(torch.cat([words, by_unit[..., -1:]], -1).flatten(1))
    return torch.cat(parts, 1)


@lru_cache(maxsize=64)
def _weight_indices(names: tuple[str, ...], device: torch.device) -> Tensor | None:
    """Return where the engine's weights come from: indices into the weights of ``names``.

    The engine takes a weight for each of its own features, and then tables of weights. For each
    of these numbers, the result has the index of the feature with this weight. If there is no
    such feature, the index is ``len(names)``, where the caller adds a zero. Hidden units are
    not included. The result is None if the engine takes the weights as they are.
    """
    engine_names = engine_features(names)
    if engine_names == names:
        return None
    index_of = {name: index for index, name in enumerate(names)}
    zero = len(names)
    indices = [index_of.get(name, zero) for name in engine_names]
    for form, table in _TABLES:
        if table in engine_names:
            indices += _table_indices(form, index_of, zero)
    return torch.tensor(indices, device=device)


def _table_indices(form: re.Pattern[str], index_of: dict[str, int], zero: int) -> list[int]:
    """Return the index of the feature for each entry of a table of weights.

    The dimensions of a table are the column, the class of the step at this column and, for
    features of two steps, the class of the next step. The table is flattened in this order.

    Args:
        form: Matches the names of the table's features. Its groups are the column and classes.
        index_of: The index of each feature, by its name.
        zero: The index for entries without a feature.
    """
    classes_per_feature = form.groups - 1
    # The engine's tables have 16 columns. The third one is the first column of the board.
    # A step belongs to one of 8 classes.
    indices = [zero] * (_SLOTS * _CLASSES**classes_per_feature)
    for name, index in index_of.items():
        match = form.fullmatch(name)
        if match is not None:
            column, *classes = map(int, match.groups())
            position = _FIRST_COLUMN + column
            for step_class in classes:
                position = position * _CLASSES + step_class
            indices[position] = index
    return indices
