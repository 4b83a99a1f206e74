"""Splines through equidistant knots as matrices: they are linear in the knots."""

import torch
from torch import Tensor

_ROUNDING = 1e-4  # the error of a time that was computed in float32


def spline_matrix(times: Tensor, knots: int, kind: str) -> Tensor:
    """Return the matrix that maps the knots of a spline to its values at some times.

    Args:
        times: The times, shape (T,), in units of the distance of two knots; knot k is at time
            k. Before the first and after the last knot the spline is constant.
        knots: The number of knots, ``>= 2``.
        kind: ``"zero"``: the knot before; ``"linear"``: straight lines between the knots;
            ``"cubic"``: cubic Hermite polynomials whose slopes at the knots are central
            differences, at the ends one-sided ones.

    Returns:
        The matrix, shape (T, knots), float64.
    """
    times = times.double().clamp(0, knots - 1)
    identity = torch.eye(knots, dtype=torch.float64)
    if kind == "zero":
        # A time that rounding has put just before a knot is that of the knot.
        return identity[(times + _ROUNDING).long().clamp(max=knots - 1)]
    left = times.long().clamp(max=knots - 2)
    share = (times - left).unsqueeze(-1)
    start = identity[left]
    end = identity[left + 1]
    if kind == "linear":
        return torch.lerp(start, end, share)
    (slopes,) = torch.gradient(identity, dim=0)
    change = end - start
    start_excess = slopes[left] - change
    end_excess = change - slopes[left + 1]
    # The cubic is the line between the knots plus what its slopes at both ends differ.
    bend = torch.lerp(start_excess, end_excess, share)
    return start + share * change + share * (1 - share) * bend
