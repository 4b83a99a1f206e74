"""Bounds of a search: how the candidates of a normal distribution stay inside a box.

    "clamp"      A candidate outside is replaced by the nearest point of the box. The elites are
                 chosen from the clamped candidates, many of which lie on the faces.
    "resample"   A candidate outside is replaced by a sample of the truncated normal
                 distribution, which is computed with the inverse of the distribution function.
                 With a full covariance, every coordinate outside is replaced separately.
    "transform"  The search itself has no bounds. A smooth increasing map transforms its points
                 into the box: a tanh between two finite bounds, a softplus at a single one.
                 Candidates do not gather on the faces. A start that is nearer to a face than
                 half a standard deviation is moved that far inside.

``low <= high`` in each dimension. An infinite bound means that there is no bound.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cem.core.checks import check_vector

BoundHandling = Literal["clamp", "resample", "transform"]
Box = tuple[Tensor, Tensor]
"""Lower and upper bounds, each of the shape of the mean."""

# The map is a tanh of u = (y - middle) / half. If |u| is at least this, the distance from a
# face has more correct digits than the distance from the middle.
_CENTRAL = 0.5


class Bounds(NamedTuple):
    """The lower and upper bounds of the parameters: ``bounds=Bounds(low, high)``.

    Attributes:
        low: The smallest values: a number, or an array whose shape broadcasts to the mean's.
            -inf means no bound.
        high: The largest values, in the same form; inf means no bound.
    """

    low: Any
    high: Any


def ends_of(bounds: Any, dim: int | None = None) -> Bounds:
    """Convert bounds to ``Bounds(low, high)``. They may have any of four forms.

    1. An object with the attributes ``lb`` and ``ub``, such as SciPy's Bounds.
    2. An object with the attributes ``low`` and ``high``: cem.Bounds or Gymnasium's Box.
    3. Two numbers (low, high), which apply to all parameters.
    4. A pair (low, high) for every parameter.

    None instead of a number means no bound.

    ``dim`` is the number of parameters, or None if it is unknown.

    Raises:
        TypeError: If the bounds have another form.
    """
    for low_name, high_name in (("lb", "ub"), ("low", "high")):
        if hasattr(bounds, low_name) and hasattr(bounds, high_name):
            return Bounds(getattr(bounds, low_name), getattr(bounds, high_name))
    is_pair = isinstance(bounds, (tuple, list)) and len(bounds) == 2
    if is_pair and all(np.ndim(end) == 0 for end in bounds):
        low, high = bounds
        return Bounds(-math.inf if low is None else low, math.inf if high is None else high)
    count = len(bounds) if hasattr(bounds, "__len__") else 0
    # If `dim` is unknown, any number of pairs is accepted.
    if count > 0 and dim in (None, count):
        are_pairs = [hasattr(pair, "__len__") and len(pair) == 2 for pair in bounds]
        if all(are_pairs):
            lows = [-math.inf if low is None else float(low) for low, _ in bounds]
            highs = [math.inf if high is None else float(high) for _, high in bounds]
            return Bounds(lows, highs)
    raise TypeError(
        f"expected a pair (low, high) for each of {dim or 'the'} parameters, "
        f"two numbers for all, or Bounds(low, high), got {bounds!r}"
    )


def check_bounds(bounds: Any, mean: Tensor) -> Box | None:
    """Return the lower and upper bounds as tensors like ``mean``, or None without bounds.

    ``bounds`` may have any form that ``ends_of`` accepts. ``mean`` is the first mean, shape
    (..., d), which must lie within the bounds.
    """
    if bounds is None:
        return None
    ends = ends_of(bounds, mean.shape[-1])
    like = (mean.shape, mean.dtype, mean.device)
    low = check_vector("the lower bounds", ends.low, *like)
    high = check_vector("the upper bounds", ends.high, *like)
    # Comparisons with NaN are False, so NaN is also an error.
    if not (low <= high).all():
        raise ValueError(f"expected bounds with low <= high in every dimension, got {bounds!r}")
    if not ((mean >= low) & (mean <= high)).all():
        raise ValueError(f"expected a mean within the bounds, got {mean.tolist()}")
    return low, high


def keep_inside(
    x: Tensor,
    mean: Tensor,
    std: Tensor,
    low: Tensor,
    high: Tensor,
    handling: str,
) -> Tensor:
    """Move samples of N(mean, std^2) into the bounds, and return the moved samples.

    Args:
        x: The samples, shape (..., N, d).
        mean: Their mean, shape (..., d).
        std: Their standard deviations, shape (..., d).
        low: The lower bounds, shape (..., d); -inf means no bound.
        high: The upper bounds, shape (..., d); inf means no bound.
        handling: "transform" maps all samples smoothly into the box. "resample" replaces the
            samples outside by samples of the truncated distribution. "clamp" moves them to the
            nearest point of the box.
    """
    # Insert a dimension of size 1, so that the bounds broadcast over the N samples.
    low = low.unsqueeze(-2)
    high = high.unsqueeze(-2)
    if handling == "transform":
        return into_box(x, low, high)
    if handling == "resample":
        # Candidates that the caller evaluated may have moved the mean outside, so far that the
        # box has no probability. Then draw about the nearest point inside.
        mean = mean.unsqueeze(-2)
        inside = mean.clamp(low, high)
        x = _truncate(x + (inside - mean), inside, std.unsqueeze(-2), low, high)
    # Clamp. After resampling, this only corrects rounding errors.
    return torch.minimum(torch.maximum(x, low), high)


def _truncate(x: Tensor, mean: Tensor, std: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Replace the samples outside the box by samples of the truncated normal distribution.

    A sample outside lies in the lower or the upper tail of N(mean, std^2). The share of the
    tail that lies beyond the sample is uniform in [0, 1]. The new sample is the point of the
    box with the same share of the box's probability below it. All tensors broadcast to the
    shape (..., N, d) of ``x``.
    """
    # If the standard deviation is 0, the quotients are not used, but must not be NaN.
    scale = torch.where(std > 0, std, torch.ones_like(std)).double()
    mean = mean.double()
    z = (x.double() - mean) / scale
    z_low = (low.double() - mean) / scale
    z_high = (high.double() - mean) / scale
    # `ndtr` is the distribution function of N(0, 1), and `ndtri` is its inverse.
    ndtr = torch.special.ndtr
    below_low = ndtr(z_low)
    below_high = ndtr(z_high)
    # The share of the lower tail below z, or of the upper tail above z. By symmetry, ndtr(-z)
    # is the probability above z.
    share_of_lower = ndtr(z) / below_low
    share_of_upper = ndtr(-z) / ndtr(-z_high)
    share = torch.where(z < z_low, share_of_lower, share_of_upper)
    below_new = below_low + share * (below_high - below_low)
    new = mean + scale * torch.special.ndtri(below_new)
    return torch.where((x < low) | (x > high), new.to(x.dtype), x)


def into_box(y: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Map unbounded points smoothly and monotonically into the interior of a box.

    ``middle`` and ``half`` are the middle and half the width of the box. In each dimension the
    map is

    - with two finite bounds, x = middle + half tanh((y - middle) / half);
    - with a single bound, a softplus of the distance from it;
    - without bounds, the identity.

    ``out_of_box`` is the inverse.
    """
    middle, half = _middle_and_half(low, high)
    u = (y - middle) / half
    # Near a face of the box (|u| >= _CENTRAL), the distance from the face is more exact than
    # the tanh. The distance is half (1 - tanh(|u|)) = 2 half sigmoid(-2 |u|).
    distance_from_low = half * (2 * torch.sigmoid(2 * u))
    distance_from_high = half * (2 * torch.sigmoid(-2 * u))
    near_face = torch.where(u < 0, low + distance_from_low, high - distance_from_high)
    is_central = u.abs() < _CENTRAL
    two_sided = torch.where(is_central, middle + half * torch.tanh(u), near_face)
    above_low = low + torch.nn.functional.softplus(y - low)
    below_high = high - torch.nn.functional.softplus(high - y)
    x = _choose_by_bounds(y, low, high, two_sided, above_low, below_high)
    # If rounding has put a point onto a face, move it to the nearest number inside.
    smallest = torch.nextafter(low, high)
    largest = torch.nextafter(high, low)
    return torch.minimum(torch.maximum(x, smallest), largest)


def out_of_box(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Map points of a box to unbounded points; this is the inverse of ``into_box``.

    In each dimension the map is

    - with two finite bounds, y = middle + half atanh(u), where u = (x - middle) / half, and
      ``middle`` and ``half`` are the middle and half the width of the box;
    - with a single bound, the inverse of the softplus;
    - without bounds, the identity.

    On a face the inverse would be infinite, so a point on a face is first moved slightly
    inside.
    """
    middle, half = _middle_and_half(low, high)
    u = (x - middle) / half
    # atanh(u) = (log(1 + u) - log(1 - u)) / 2. Near a face of the box (|u| >= _CENTRAL), 1 + u
    # and 1 - u lose digits. Half the distances from the two faces are proportional to them,
    # and are used instead. The bounds are halved before they are subtracted, because the
    # difference may overflow.
    limits = torch.finfo(x.dtype)
    min_distance = (limits.eps * half).clamp(min=limits.tiny)
    half_from_low = torch.maximum(x / 2 - low / 2, min_distance)
    half_from_high = torch.maximum(high / 2 - x / 2, min_distance)
    atanh_near_face = (half_from_low.log() - half_from_high.log()) / 2
    is_central = u.abs() < _CENTRAL
    two_sided = middle + half * torch.where(is_central, torch.atanh(u), atanh_near_face)
    above_low = low + _inverse_softplus(x - low)
    below_high = high - _inverse_softplus(high - x)
    return _choose_by_bounds(x, low, high, two_sided, above_low, below_high)


def start_out_of_box(mean: Tensor, std: Tensor, low: Tensor, high: Tensor) -> Box:
    """Return the first mean and standard deviation in the unbounded space of ``into_box``.

    A mean near a face is first moved to half a standard deviation from it, if there is room.
    Then the standard deviation is divided by the slope of ``into_box``, which is small near a
    face. So the distribution is about as wide in the box as ``std`` says.

    Args:
        mean: The first mean in the box, shape (..., d).
        std: The first standard deviation in the box, shape (..., d).
        low: The lower bounds, shape (..., d); -inf means no bound.
        high: The upper bounds, shape (..., d); inf means no bound.
    """
    middle, half = _middle_and_half(low, high)
    inset = torch.minimum(std / 2, half / 4)
    inside = torch.minimum(torch.maximum(mean, low + inset), high - inset)
    # The slope of `into_box` at the mean. With two bounds it is 1 - tanh^2, where tanh is
    # (inside - middle) / half. With one bound it is the derivative of softplus, which is
    # 1 - exp(-distance from the bound).
    two_sided = 1 - ((inside - middle) / half).square()
    above_low = -torch.expm1(low - inside)
    below_high = -torch.expm1(inside - high)
    slope = _choose_by_bounds(inside, low, high, two_sided, above_low, below_high)
    # The new standard deviation is limited, because the slope may be almost 0.
    widest = torch.where(half.isfinite(), half, std.clamp(min=1.0))
    slope = slope.clamp(min=torch.finfo(std.dtype).tiny)
    stretched = torch.minimum(std / slope, widest)
    # Without bounds, the map is the identity. If both bounds are equal, the value is constant.
    is_mapped = (low.isfinite() | high.isfinite()) & (low < high)
    unbounded_std = torch.where(is_mapped, stretched, std)
    return out_of_box(inside, low, high), unbounded_std


def _middle_and_half(low: Tensor, high: Tensor) -> Box:
    """Return the middle of the box and half its width."""
    # Both ends are halved first, because their sum or difference may overflow.
    return low / 2 + high / 2, high / 2 - low / 2


def _choose_by_bounds(
    x: Tensor,
    low: Tensor,
    high: Tensor,
    two_sided: Tensor,
    above_low: Tensor,
    below_high: Tensor,
) -> Tensor:
    """Return, elementwise, the value that belongs to the bounds of the parameter.

    An infinite bound means that there is no bound. The result is

    - ``two_sided`` if both bounds are finite and different;
    - the bound itself if both bounds are equal;
    - ``above_low`` or ``below_high`` if only that bound is finite;
    - ``x`` if there are no bounds.
    """
    has_low = low.isfinite()
    has_high = high.isfinite()
    below_high_or_free = torch.where(has_high, below_high, x)
    one_sided = torch.where(has_low, above_low, below_high_or_free)
    # The zeros give the constant the shape and the dtype of x.
    constant = low + torch.zeros_like(x)
    two_sided = torch.where(low == high, constant, two_sided)
    return torch.where(has_low & has_high, two_sided, one_sided)


def _inverse_softplus(x: Tensor) -> Tensor:
    """Return log(exp(x) - 1), without overflow."""
    # At 0 the result would be -inf.
    x = x.clamp(min=torch.finfo(x.dtype).tiny)
    return x + torch.log(-torch.expm1(-x))
