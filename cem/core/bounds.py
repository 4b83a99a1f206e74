"""Bounds of a search: how candidates of a normal distribution are kept inside a box.

    "clamp"      the nearest point of the box; the elites are clamped ones. Mass gathers on the faces.
    "resample"   drawn again until inside, by the inverse of the distribution function: the truncated normal.
                 With full covariance each coordinate that is outside is drawn again by itself.
    "transform"  the search has no bounds, and a smooth increasing map takes its points into the box: a tanh
                 between two finite bounds, a softplus at one. Nothing gathers at the faces. A start nearer
                 to a face than half a standard deviation begins so far inside.

``low <= high`` for each dimension; infinities stand for no bound.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cem.core.checks import check_vector

BoundHandling = Literal["clamp", "resample", "transform"]


class Bounds(NamedTuple):
    """Bounds by their ends: ``bounds=Bounds(low, high)``.

    Attributes:
        low: The least values, a number or of a shape that broadcasts to the mean; -inf: none.
        high: The greatest values, in the same way.
    """

    low: Any
    high: Any


def ends_of(bounds: Any, dim: int | None = None) -> Bounds:
    """Return bounds of any form that ``CrossEntropyMethod`` takes, of ``dim`` parameters if that is known."""
    for low, high in (("lb", "ub"), ("low", "high")):  # of SciPy; ours, and a Box of Gymnasium
        if hasattr(bounds, low) and hasattr(bounds, high):
            return Bounds(getattr(bounds, low), getattr(bounds, high))
    if isinstance(bounds, (tuple, list)) and len(bounds) == 2 and all(np.ndim(end) == 0 for end in bounds):
        return Bounds(*bounds)
    if hasattr(bounds, "__len__") and len(bounds) == (dim or len(bounds)) > 0:
        pairs = [tuple(pair) for pair in bounds if hasattr(pair, "__len__") and len(pair) == 2]
        if len(pairs) == len(bounds):
            return Bounds(
                [-math.inf if low is None else float(low) for low, _ in pairs],
                [math.inf if high is None else float(high) for _, high in pairs],
            )
    raise TypeError(
        f"expected a pair (low, high) for each of {dim or 'the'} parameters, two numbers for all, or "
        f"Bounds(low, high), got {bounds!r}"
    )


def check_bounds(bounds: Any, mean: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return lower and upper bounds as tensors like ``mean``, or None where there are no bounds."""
    if bounds is None:
        return None
    ends = ends_of(bounds, mean.shape[-1])
    low, high = (
        check_vector(f"the {name} bounds", end, mean.shape, mean.dtype, mean.device)
        for name, end in (("lower", ends.low), ("upper", ends.high))
    )
    if not bool((low <= high).all()):  # False for NaN, too
        raise ValueError(f"expected bounds with low <= high in every dimension, got {bounds!r}")
    if not bool(((mean >= low) & (mean <= high)).all()):
        raise ValueError(f"expected a mean within the bounds, got {mean.tolist()}")
    return low, high


_MIDDLE = 0.5  # of half a width: points beyond it are measured from the nearer face


def keep_inside(x: Tensor, mean: Tensor, std: Tensor, low: Tensor, high: Tensor, handling: str) -> Tensor:
    """Return draws of N(mean, std^2), shape (..., N, d), inside bounds, by a ``BoundHandling``."""
    low, high = low.unsqueeze(-2), high.unsqueeze(-2)
    if handling == "transform":
        return into_box(x, low, high)
    if handling == "resample":
        x = _truncated(x, mean.unsqueeze(-2), std.unsqueeze(-2), low, high)
    return torch.minimum(torch.maximum(x, low), high)


def _truncated(x: Tensor, mean: Tensor, std: Tensor, low: Tensor, high: Tensor) -> Tensor:
    # Outside, the part of its tail that a point leaves above it is uniform; it becomes the place of a new
    # point in the mass of the box.
    scale = torch.where(std > 0, std, torch.ones_like(std)).double()
    z, a, b = ((end.double() - mean.double()) / scale for end in (x, low, high))
    below, above = torch.special.ndtr(a), torch.special.ndtr(b)
    share = torch.where(z < a, torch.special.ndtr(z) / below, torch.special.ndtr(-z) / torch.special.ndtr(-b))
    new = mean + scale * torch.special.ndtri(below + share * (above - below))
    return torch.where((x < low) | (x > high), new.to(x.dtype), x)


def into_box(y: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the points of the box for points without bounds; increasing, smooth, and never on a face."""
    middle, half = low / 2 + high / 2, high / 2 - low / 2  # the sum of two limits may overflow
    place = (y - middle) / half
    from_low, from_high = half * (2 * torch.sigmoid(2 * place)), half * (2 * torch.sigmoid(-2 * place))
    near_face = torch.where(place < 0, low + from_low, high - from_high)  # the same, measured from there
    both = torch.where(place.abs() < _MIDDLE, middle + half * torch.tanh(place), near_face)
    above, below = low + torch.nn.functional.softplus(y - low), high - torch.nn.functional.softplus(high - y)
    least, most = torch.nextafter(low, high), torch.nextafter(high, low)
    return torch.minimum(torch.maximum(_choose(y, low, high, both, above, below), least), most)


def out_of_box(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the inverse of ``into_box``; a point on a face counts as one very near to it."""
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    place = (x - middle) / half
    nearest = (torch.finfo(x.dtype).eps * half).clamp(min=torch.finfo(x.dtype).tiny)
    from_low, from_high = (torch.maximum(each, nearest) for each in (x / 2 - low / 2, high / 2 - x / 2))
    near_face = (from_low.log() - from_high.log()) / 2
    both = middle + half * torch.where(place.abs() < _MIDDLE, torch.atanh(place), near_face)
    above, below = low + _inverse_softplus(x - low), high - _inverse_softplus(high - x)
    return _choose(x, low, high, both, above, below)


def start_out_of_box(mean: Tensor, std: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return a start in the space without bounds that is about as wide in the box as ``std`` says.

    Near a face the map is flat: the standard deviation is divided by its slope. The start is moved to half a
    standard deviation from a face, if there is room, and is no wider than fills the box.
    """
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    inset = torch.minimum(std / 2, half / 4)
    inside = torch.minimum(torch.maximum(mean, low + inset), high - inset)
    both = 1 - ((inside - middle) / half).square()
    slope = _choose(inside, low, high, both, -torch.expm1(low - inside), -torch.expm1(inside - high))
    widest = torch.where(half.isfinite(), half, std.clamp(min=1.0))
    wide = torch.minimum(std / slope.clamp(min=torch.finfo(std.dtype).tiny), widest)
    bounded = (low.isfinite() | high.isfinite()) & (low < high)
    return out_of_box(inside, low, high), torch.where(bounded, wide, std)


def _choose(x: Tensor, low: Tensor, high: Tensor, both: Tensor, above: Tensor, below: Tensor) -> Tensor:
    has_low, has_high = low.isfinite(), high.isfinite()
    one = torch.where(has_low, above, torch.where(has_high, below, x))
    box = torch.where(low == high, low + torch.zeros_like(x), both)
    return torch.where(has_low & has_high, box, one)


def _inverse_softplus(x: Tensor) -> Tensor:
    x = x.clamp(min=torch.finfo(x.dtype).tiny)
    return x + torch.log(-torch.expm1(-x))
