"""Spaces of plans: which vectors a search moves, and which plans they stand for.

A plan is a sequence of ``horizon`` actions. The search sees it as a vector of d numbers, in
``length`` steps of ``width`` numbers:

    BoxSpace            the actions, one after another
    SplineSpace         the knots of a spline through the actions, one after another
    CategoricalSpace    an indicator for each value of each number of an action; where the
                        vector is the mean, the probabilities of the values
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.bounds import Box, ends_of, keep_inside
from cem.core.checks import check_distribution, check_real, check_vector
from cem.core.state import MEAN, STD
from cem.families.categorical import Categorical
from cem.plan.noise import Noise, NoiseKey, color, coloring_matrix
from cem.plan.options import Options
from cem.plan.spline import spline_matrix
from kernels.ops.normal import sample_normal_rows
from kernels.support.checks import check_integer


class BoxSpace:
    """Plans of real numbers between bounds.

    Attributes:
        length: The steps of a vector.
        width: The numbers of a step.
        first_mean: The mean at the start of an episode, shape (d,).
        first_std: The standard deviation at the start of a step, shape (d,).
    """

    def __init__(self, length: int, bounds: Box, std: Tensor | None) -> None:
        """Make a space.

        Args:
            length: The steps of a vector.
            bounds: The bounds of a step, each of shape (width,).
            std: The first standard deviation of a step, shape (width,), or None.
        """
        low, high = bounds
        is_finite = low.isfinite() & high.isfinite()
        if std is None and not is_finite.all():
            got = low.tolist(), high.tolist()
            raise ValueError(f"expected std, or finite bounds, got {got}")
        middle = (low + high) / 2
        nearest_to_zero = torch.zeros_like(middle).clamp(low, high)
        mean = torch.where(is_finite, middle, nearest_to_zero)
        if std is None:
            std = (high - low) / 3
        check_distribution(mean, std)
        self.length = length
        self.width = len(mean)
        self.first_mean = mean.repeat(length)
        self.first_std = std.repeat(length)
        self.bounds = low.repeat(length), high.repeat(length)
        self._coloring: Tensor | None = None

    def set_noise(self, noise: Noise, beta: float, bound_handling: str) -> None:
        """Set what plans are drawn from, the color of the noise, and how plans stay inside."""
        self._noise = noise
        self._resamples = bound_handling == "resample"
        if beta > 0:
            self._coloring = coloring_matrix(self.length, beta).to(self.first_mean)

    def draw(self, distribution: Tensor, size: int, key: NoiseKey) -> Tensor:
        """Return vectors drawn from a distribution (B, 4, d), shape (B, size, d)."""
        is_plain = self._coloring is None and not self._resamples
        if is_plain and self._noise.backend != "torch":
            return sample_normal_rows(
                distribution,
                size,
                seed=key.seeds,
                generation=key.generation,
                bounds=self.bounds,
            )
        mean = distribution[:, MEAN]
        std = distribution[:, STD]
        noise = self._draw_noise(mean, size, key)
        vectors = torch.addcmul(mean[:, None], std[:, None], noise)
        if self._resamples:
            return keep_inside(vectors, mean, std, *self.bounds, "resample")
        return vectors.clamp(*self.bounds)

    def _draw_noise(self, like: Tensor, size: int, key: NoiseKey) -> Tensor:
        """Return noise of the spectrum ``1 / f^beta`` for ``like`` (B, d), (B, size, d)."""
        noise = self._noise.draw(like, size, key)
        return noise if self._coloring is None else color(noise, self._coloring)

    def decode(self, vectors: Tensor) -> Tensor:
        """Return the plans (..., horizon, A) of vectors (..., d)."""
        return vectors.view(*vectors.shape[:-1], self.length, self.width)

    def encode(self, plans: Tensor) -> Tensor:
        """Return the vectors (..., d) of plans (..., horizon, A)."""
        return plans.flatten(-2).to(self.first_mean.dtype).clamp(*self.bounds)

    def check_plans(self, name: str, plans: Tensor) -> None:
        """Raise ValueError if plans (..., horizon, A) from outside cannot be encoded."""
        if plans.isnan().any():
            raise ValueError(f"expected {name} without NaN, got {plans.tolist()}")

    def as_candidate(self, mean: Tensor) -> Tensor:
        """Return the vector of the plan that a mean stands for; both have shape (..., d)."""
        return mean

    def widen(self, mean: list[Tensor]) -> list[Tensor]:
        """Return the mean of the first iteration, in parts, for the mean of a step before."""
        return mean

    def shift_mean(self, mean: Tensor, steps: int) -> list[Tensor]:
        """Return a mean (B, d) in parts, moved forward by a number of actions.

        The last action is repeated.
        """
        steps = min(steps, self.length)
        last = mean[:, -self.width :]
        return [mean[:, steps * self.width :], *[last] * steps]

    def shift_elites(self, elites: Tensor, steps: int, out: Tensor) -> None:
        """Write elites (B, K, d), moved forward by some actions, over vectors that were drawn.

        The actions that enter the horizon stay the ones that were drawn. At the start of an
        episode there are no elites, their numbers are NaN, and all vectors stay as they were.
        """
        shifted = elites[..., min(steps, self.length) * self.width :]
        # This is a view: what is written to it is written to the vectors.
        replaced = out[..., : shifted.shape[-1]]
        torch.where(shifted.isnan(), replaced, shifted, out=replaced)


class SplineSpace(BoxSpace):
    """Plans that are splines through a few knots, which lie between the bounds."""

    def __init__(
        self, length: int, bounds: Box, std: Tensor | None, horizon: int, kind: str
    ) -> None:
        """Make a space of ``length`` knots; ``spline_matrix`` explains the kinds."""
        super().__init__(length, bounds, std)
        self._horizon = horizon
        self._kind = kind
        self._action_bounds = bounds
        self._basis = self._make_matrix(torch.arange(horizon))
        # The least squares fit of the knots to actions.
        self._fit = torch.linalg.pinv(self._basis.double()).to(self._basis)
        self._shifts: dict[int, Tensor] = {}

    def decode(self, vectors: Tensor) -> Tensor:
        """Return the plans (..., horizon, A) of vectors (..., d)."""
        actions = _multiply(self._basis, super().decode(vectors))
        return actions.clamp(*self._action_bounds)

    def encode(self, plans: Tensor) -> Tensor:
        """Return the vectors (..., d) of the splines nearest to plans (..., horizon, A)."""
        return super().encode(_multiply(self._fit, plans.to(self._fit)))

    def shift_mean(self, mean: Tensor, steps: int) -> list[Tensor]:
        """Return the knots of the same spline, ``steps`` actions later, (B, d), in a list."""
        return [self._shift(mean, steps)]

    def shift_elites(self, elites: Tensor, steps: int, out: Tensor) -> None:
        """Write elites (B, K, d), moved forward by some actions, over vectors that were drawn.

        At the start of an episode the elites are NaN, and the vectors stay as they were.
        """
        shifted = self._shift(elites, steps)
        torch.where(shifted.isnan(), out, shifted, out=out)

    def _shift(self, vectors: Tensor, steps: int) -> Tensor:
        if steps not in self._shifts:
            actions_per_knot = (self._horizon - 1) / (self.length - 1)
            times = torch.arange(self.length) * actions_per_knot + steps
            self._shifts[steps] = self._make_matrix(times)
        return _multiply(self._shifts[steps], super().decode(vectors)).flatten(-2)

    def _make_matrix(self, times: Tensor) -> Tensor:
        """Return the matrix that evaluates a spline at times, counted in actions."""
        knots_per_action = (self.length - 1) / max(1, self._horizon - 1)
        return spline_matrix(times * knots_per_action, self.length, self._kind).to(
            self.first_mean
        )


class CategoricalSpace(BoxSpace):
    """Plans of whole numbers from 0, each with a number of values of its own.

    The mean of the distribution has their probabilities. Its standard deviations are not used.
    """

    def __init__(self, length: int, sizes: list[int], spread: float, like: Tensor) -> None:
        """Make a space.

        Args:
            length: The actions of a plan.
            sizes: The number of values of each number of an action.
            spread: The share of the uniform distribution in the first one of a step.
            like: A tensor of the dtype and device of vectors.
        """
        counts = torch.tensor(sizes, device=like.device)
        self._values = torch.arange(max(sizes), device=like.device)
        is_value = self._values < counts[:, None]
        uniform = (is_value / counts[:, None]).to(like.dtype).flatten()
        super().__init__(length, (uniform * 0, uniform * 0 + 1), None)
        self.first_mean = uniform.repeat(length)
        self._largest = (counts - 1).repeat(length)
        self._spread = spread

    def draw(self, distribution: Tensor, size: int, key: NoiseKey) -> Tensor:
        """Return vectors drawn from a distribution (B, 4, d), shape (B, size, d)."""
        mean = distribution[:, MEAN].unflatten(-1, (-1, len(self._values)))
        uniform = torch.special.ndtr(self._draw_noise(mean[..., 0], size, key))
        sums = mean.cumsum(-1).unsqueeze(1)
        values = (uniform.unsqueeze(-1) >= sums).sum(-1)
        # Rounding may leave the last sum below 1.
        return self._indicate(torch.minimum(values, self._largest))

    def _indicate(self, values: Tensor) -> Tensor:
        """Return the vectors (..., d) for values (..., length * A)."""
        return (values.unsqueeze(-1) == self._values).to(self.first_mean.dtype).flatten(-2)

    def decode(self, vectors: Tensor) -> Tensor:
        """Return the plans (..., horizon, A), int64, of vectors (..., d)."""
        indicators = vectors.unflatten(-1, (self.length, -1, len(self._values)))
        plans: Tensor = indicators.argmax(-1)
        return plans

    def encode(self, plans: Tensor) -> Tensor:
        """Return the vectors (..., d) of plans (..., horizon, A)."""
        return self._indicate(plans.flatten(-2).long())

    def check_plans(self, name: str, plans: Tensor) -> None:
        """Raise ValueError if plans (..., horizon, A) have numbers that are no values."""
        values = plans.flatten(-2)
        is_value = (values == values.round()) & (values >= 0)
        if not (is_value & (values <= self._largest.cpu())).all():
            raise ValueError(f"expected {name} of the values from 0 on, got {plans.tolist()}")

    def as_candidate(self, mean: Tensor) -> Tensor:
        """Return the vector of the likeliest plan."""
        return self.encode(self.decode(mean))

    def widen(self, mean: list[Tensor]) -> list[Tensor]:
        """Return the mean of the first iteration, in which every value is possible."""
        probabilities = torch.cat(mean, dim=-1)
        return [torch.lerp(probabilities, self.first_mean, self._spread)]


def make_space(
    horizon: int, action_dim: int, block: int, bounds: Any, options: Options, like: Tensor
) -> BoxSpace:
    """Return the space of plans with the bounds, or the values, of an action.

    Args:
        horizon: The actions of a plan.
        action_dim: The numbers of an action of the environment.
        block: How many of these make one action of a plan.
        bounds: The bounds or the values, as ``Planner`` takes them.
        options: The options of the planner.
        like: A tensor of the dtype and device of plans.
    """
    sizes = _find_sizes(bounds)
    if sizes is not None:
        if len(sizes) != action_dim:
            raise ValueError(
                f"expected action_dim {len(sizes)} for {bounds!r}, got {action_dim}"
            )
        spread = 0.5 if options.std is None else options.std
        check_real("std of discrete actions", spread, 0.0, 1.0)
        return CategoricalSpace(horizon, sizes * block, spread, like)
    shape = torch.Size([action_dim])
    low, high = (end.repeat(block) for end in _check_bounds(bounds, shape, like))
    std = options.std
    if std is not None:
        std = check_vector("std", std, shape, like.dtype, like.device).repeat(block)
    if options.knots is None:
        return BoxSpace(horizon, (low, high), std)
    knots = check_integer("knots", options.knots, 2, horizon)
    return SplineSpace(knots, (low, high), std, horizon, options.spline)


def _find_sizes(space: Any) -> list[int] | None:
    """Return how many values each number of a discrete action has; None: it is not discrete."""
    if isinstance(space, Categorical):
        return list(space.sizes)
    counts = getattr(space, "nvec", getattr(space, "n", None))
    # MultiBinary has an n, but no start.
    if counts is None or not hasattr(space, "start"):
        return None
    if np.any(space.start):
        raise ValueError(f"expected discrete actions that start at 0, got {space!r}")
    return [int(count) for count in np.ravel(counts)]


def _check_bounds(bounds: Any, shape: torch.Size, like: Tensor) -> Box:
    """Return the lower and upper bounds of an action, each of a shape.

    Args:
        bounds: A pair (low, high) of numbers or vectors; a Box of Gymnasium, which has ``low``
            and ``high``; SciPy's Bounds, which has ``lb`` and ``ub``; or None for no bounds.
        shape: The shape (A,).
        like: A tensor of the dtype and device of plans.
    """
    if bounds is None:
        bounds = (-math.inf, math.inf)
    elif hasattr(bounds, "low") or hasattr(bounds, "lb"):
        bounds = ends_of(bounds)
    if not hasattr(bounds, "__len__") or len(bounds) != 2:
        expected = "(low, high), a Box, Bounds, a discrete space or None for bounds"
        raise TypeError(f"expected {expected}, got {bounds!r}")
    low = check_vector("bounds", bounds[0], shape, like.dtype, like.device)
    high = check_vector("bounds", bounds[1], shape, like.dtype, like.device)
    if not (low < high).all():
        raise ValueError(f"expected bounds with low < high, got {bounds!r}")
    return low, high


def _multiply(matrix: Tensor, series: Tensor) -> Tensor:
    """Return a matrix (T, S) times series (..., S, A), under autocast in full precision."""
    with torch.autocast(series.device.type, enabled=False):
        return matrix @ series
