"""Weights as whole numbers: what a controller plays with, and how the engines get them.

Features are whole numbers, or halves of them. Where weights are whole numbers, too, a score comes out the
same in whatever order it is added up, and every engine may add as suits it. But for their rounding a
controller's choices do not depend on the length of its weight vector, so weights may be multiples of any
step. It is a power of two that leaves `BITS` bits and a sign to the greatest weight: a vector twice as long
has the same quantized weights.

The engines look features of steps up in tables of weights, whichever of them there are: `engine_weights`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

import torch
from torch import Tensor

from tetris.game.features import DENOMINATORS

BITS = 15
"""Bits of the greatest weight, so that products of two numbers of 16 bits and a sign make a score."""

_SMALLEST = 2.0**-200  # that a weight counts as; float32 has none but 0 below 2^-149
_MANTISSA_BITS = 52  # of float64; the exponent is above them
_SLOTS, _FIRST, _CLASSES = 16, 2, 8  # TABLE_SLOTS, FIRST_COLUMN and 1 << CLASS_BITS of tetris/engine
_TABLES = (
    (re.compile(r"step_(\d+)_(\d+)"), "step_features_1"),
    (re.compile(r"step_pair_(\d+)_(\d+)_(\d+)"), "step_features_2"),
)


def quantized_weights(weights: Tensor, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return weights as whole numbers, and what 1 stands for.

    A weight is about ``whole * step * denominator`` of its feature: the nearest such number, of two the even
    one, but never one of 16 bits; NaN counts as 0. IEEE operations alone, so that every processor has the
    same. Weights and whole numbers, int32, are of shape (..., features), steps, powers of two, (..., 1).
    """
    parts = torch.nan_to_num(weights.double() / _denominators(names, weights.device))
    greatest = parts.abs().amax(-1, keepdim=True).clamp(min=_SMALLEST)
    exponent = greatest.view(torch.int64) >> _MANTISSA_BITS  # of its highest bit, and the format's bias
    step = ((exponent - (BITS - 1)) << _MANTISSA_BITS).view(torch.float64)
    most = (1 << BITS) - 1
    return (parts / step).round().clamp(-most, most).int(), step


def played_weights(weights: Tensor, names: Sequence[str]) -> Tensor:
    """Return weights rounded as `quantized_weights` does, float64; weighted sums of features are exact."""
    whole, step = quantized_weights(weights, names)
    return whole * step * _denominators(names, weights.device)


def _denominators(names: Sequence[str], device: torch.device) -> Tensor:
    numbers = torch.ones(len(names), dtype=torch.float64, device=device)
    for index, name in enumerate(names):
        if name in DENOMINATORS:
            numbers[index].fill_(DENOMINATORS[name])  # to assign it would copy it to a GPU, and wait
    return numbers


def engine_features(names: Sequence[str]) -> tuple[str, ...]:
    """Return the features of an engine that plays a list of them: one feature for all that share a table."""
    others = (name for name in names if not any(kind.fullmatch(name) for kind, _ in _TABLES))
    tables = (table for kind, table in _TABLES if any(kind.fullmatch(name) for name in names))
    return (*others, *tables)


def engine_weights(weights: Tensor, names: Sequence[str]) -> Tensor:
    """Return the quantized weights of a list of features as its engine wants them.

    Shape (candidates, features of the engine and entries of its tables), int32: those of `engine_features`, 0
    for the tables; then the tables. Each has a number for every column and class of a step, or for every
    column and classes of two, 0 where there is no such feature.
    """
    whole, _ = quantized_weights(weights, names)
    places = _places(tuple(names), whole.device)
    return whole if places is None else torch.cat([whole, torch.zeros_like(whole[:, :1])], 1)[:, places]


@lru_cache(maxsize=64)
def _places(names: tuple[str, ...], device: torch.device) -> Tensor | None:
    """Return the feature of each number, or their count where it has none; None: all stay where they are."""
    features, none = {name: index for index, name in enumerate(names)}, len(names)
    engine = engine_features(names)
    if engine == names:
        return None
    places = [[features.get(name, none) for name in engine]]
    for kind, table in _TABLES:
        if table in engine:
            entries = [none] * (_SLOTS * _CLASSES ** (kind.groups - 1))
            for name, index in features.items():
                if found := kind.fullmatch(name):
                    column, *classes = map(int, found.groups())
                    place = _FIRST + column
                    for each in classes:
                        place = place * _CLASSES + each
                    entries[place] = index
            places.append(entries)
    return torch.tensor(list(chain.from_iterable(places)), device=device)
