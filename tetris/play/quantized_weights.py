"""Weights as whole numbers: what a controller plays with.

Features are whole numbers, or halves of them. Where weights are whole numbers, too, a score comes out the
same in whatever order it is added up, and every engine may add as suits it. But for their rounding a
controller's choices do not depend on the length of its weight vector, so weights may be multiples of any
step. It is a power of two that leaves `BITS` bits and a sign to the greatest weight: a vector twice as long
has the same quantized weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tetris.game.features import DENOMINATORS

BITS = 15
"""Bits of the greatest weight, so that products of two numbers of 16 bits and a sign make a score."""

_SMALLEST = 2.0**-200  # that a weight counts as; float32 has none but 0 below 2^-149
_MANTISSA_BITS = 52  # of float64; the exponent is above them


def quantized_weights(weights: Tensor, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return weights as whole numbers, and what 1 stands for.

    A weight is about ``whole * step * denominator`` of its feature: the nearest such number, of two the even
    one, but never one of 16 bits. IEEE operations alone, so that every processor has the same.

    Args:
        weights: Shape (..., features), finite; NaN counts as 0.
        names: Names of the features, in their order.

    Returns:
        The whole numbers, shape (..., features), int32, from -2^15 + 1 to 2^15 - 1; and the steps, shape
        (..., 1), float64, powers of two.
    """
    parts = torch.nan_to_num(weights.double() / _denominators(names, weights.device))
    greatest = parts.abs().amax(-1, keepdim=True).clamp(min=_SMALLEST)
    exponent = greatest.view(torch.int64) >> _MANTISSA_BITS  # of its highest bit, and the format's bias
    step = ((exponent - (BITS - 1)) << _MANTISSA_BITS).view(torch.float64)
    most = (1 << BITS) - 1
    return (parts / step).round().clamp(-most, most).int(), step


def played_weights(weights: Tensor, names: Sequence[str]) -> Tensor:
    """Return weights rounded as `quantized_weights` does: shape (..., features), float64.

    Sums of their products with features are exact in float64.

    Args:
        weights: Shape (..., features), finite.
        names: Names of the features, in their order.
    """
    whole, step = quantized_weights(weights, names)
    return whole * step * _denominators(names, weights.device)


def _denominators(names: Sequence[str], device: torch.device) -> Tensor:
    numbers = torch.ones(len(names), dtype=torch.float64, device=device)
    for index, name in enumerate(names):
        if name in DENOMINATORS:
            numbers[index].fill_(DENOMINATORS[name])  # to assign it would copy it to a GPU, and wait
    return numbers
