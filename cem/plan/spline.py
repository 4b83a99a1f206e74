"""Splines through equidistant knots, as matrices: the values are linear in the knots."""

import torch
from torch import Tensor

_ROUNDING = 1e-4  # the error of a time that was computed in float32


def spline_matrix(times: Tensor, knots: int, kind: str) -> Tensor:
    """Return the matrix that maps the knots of a spline to its values at given times.

    Args:
        times: The times, shape (T,). Knot k is at time k. Before the first and after the last
            knot the spline is constant.
        knots: The number of knots, ``>= 2``.
        kind: ``"zero"``: constant after each knot; ``"linear"``: straight lines between the
            knots; ``"cubic"``: cubic Hermite polynomials, whose slopes at the knots are central
            differences, and one-sided differences at the ends.

    Returns:
        The matrix, shape (T, knots), float64.
    """
    times = times.double().clamp(0, knots - 1)
    # A value of the spline is represented by a row: the weights of all knots. The value at
    # knot k is row k of the identity.
    identity = torch.eye(knots, dtype=torch.float64)
    if kind == "zero":
        # A time at a knot may have been rounded to just before it.
        return identity[(times + _ROUNDING).long().clamp(max=knots - 1)]

    # ``left`` is the index of the knot before each time. ``share`` is the distance from it, in
    # [0, 1].
    left = times.long().clamp(max=knots - 2)
    share = (times - left).unsqueeze(-1)
    start = identity[left]
    end = identity[left + 1]
    if kind == "linear":
        return torch.lerp(start, end, share)

    # Row k of the slopes has the weights for the slope at knot k.
    (slopes,) = torch.gradient(identity, dim=0)
    change = end - start
    # The cubic is a straight line with the slope ``change``, plus a term with ``bend``. This
    # term is 0 at both knots, and changes the slopes there to ``slopes``.
    start_excess = slopes[left] - change
    end_excess = change - slopes[left + 1]
    bend = torch.lerp(start_excess, end_excess, share)
    return start + share * change + share * (1 - share) * bend
