"""Spaces of plans: the vectors that a search uses, and the plans that they represent.

A plan is a sequence of ``horizon`` actions. The search represents it by a vector of d numbers,
which consists of ``length`` steps of ``width`` numbers:

    BoxSpace            the actions, one after another
    SplineSpace         the knots of a spline through the actions, one after another
    CategoricalSpace    a one-hot vector for each number of an action; the mean of a
                        distribution has the probabilities of the values in its place
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.backend import multiply
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
        length: The number of steps of a vector.
        width: The number of numbers per step.
        first_mean: The mean at the start of an episode, shape (d,).
        first_std: The standard deviation at the start of a step, shape (d,).
        limits: The lowest and the highest numbers of vectors, each of shape (d,).
    """

    def __init__(self, length: int, bounds: Box, std: Tensor | None) -> None:
        """Make a space.

        Args:
            length: The number of steps of a vector, which has length * width numbers.
            bounds: The bounds (low, high) of a step, each of shape (width,).
            std: The initial standard deviation of a step, shape (width,). None: a third of the
                distance between the bounds, which must be finite.
        """
        low, high = bounds
        is_finite = low.isfinite() & high.isfinite()
        if std is None and not is_finite.all():
            got = low.tolist(), high.tolist()
            raise ValueError(f"expected std, or finite bounds, got {got}")
        # The search starts in the middle between the bounds. If one of them is infinite, it
        # starts at the allowed number that is nearest to 0.
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
        self.limits = low.repeat(length), high.repeat(length)
        self._action_bounds = bounds
        self._coloring: Tensor | None = None

    def set_noise(self, noise: Noise, beta: float, bound_handling: str) -> None:
        """Set the source of noise, its spectrum ``1 / f^beta``, and the bound handling.

        With "clamp_plans" vectors may exceed the bounds of actions by a standard deviation, and
        only the plans are clamped. If vectors are clamped, too, the mean of the elites rarely
        reaches a bound, which is where the best actions of many systems are.
        """
        self._noise = noise
        self._resamples = bound_handling == "resample"
        if bound_handling == "clamp_plans":
            low, high = self.limits
            self.limits = low - self.first_std, high + self.first_std
        if beta > 0:
            self._coloring = coloring_matrix(self.length, beta).to(self.first_mean)

    def draw(self, distribution: Tensor, size: int, key: NoiseKey) -> Tensor:
        """Draw ``size`` vectors from the distribution of each environment.

        Args:
            distribution: The distributions, shape (B, 4, d); the first two rows are the mean
                and the standard deviation.
            size: The number of vectors.
            key: The key of the noise.

        Returns:
            The vectors, shape (B, size, d), inside the limits.
        """
        # A fused operator draws vectors with white noise, and clamps them to the limits. It can
        # neither correlate the noise over time (``_coloring``) nor resample.
        fits_operator = self._coloring is None and not self._resamples
        if fits_operator and self._noise.backend != "torch":
            return sample_normal_rows(
                distribution,
                size,
                seed=key.seeds,
                generation=key.generation,
                bounds=self.limits,
            )
        mean = distribution[:, MEAN]
        std = distribution[:, STD]
        noise = self._draw_noise(mean, size, key)
        # Mean and standard deviation, shape (B, 1, d), broadcast over the vectors.
        vectors = torch.addcmul(mean[:, None], std[:, None], noise)
        if self._resamples:
            return keep_inside(vectors, mean, std, *self.limits, "resample")
        return vectors.clamp(*self.limits)

    def _draw_noise(self, like: Tensor, size: int, key: NoiseKey) -> Tensor:
        """Return noise with the spectrum ``1 / f^beta``, shape (B, size, d).

        ``like``, shape (B, d), sets the dtype and the device.
        """
        noise = self._noise.draw(like, size, key)
        return noise if self._coloring is None else color(noise, self._coloring)

    def decode(self, vectors: Tensor) -> Tensor:
        """Return the plans (..., horizon, A) of vectors (..., d)."""
        return self._split_steps(vectors).clamp(*self._action_bounds)

    def _split_steps(self, vectors: Tensor) -> Tensor:
        """Return a view (..., length, width) of vectors (..., d)."""
        return vectors.view(*vectors.shape[:-1], self.length, self.width)

    def encode(self, plans: Tensor) -> Tensor:
        """Return the vectors (..., d) of plans (..., horizon, A)."""
        return plans.flatten(-2).to(self.first_mean.dtype).clamp(*self.limits)

    def check_plans(self, name: str, plans: Tensor) -> None:
        """Raise ValueError if a user's plans (..., horizon, A) cannot be encoded."""
        if plans.isnan().any():
            raise ValueError(f"expected {name} without NaN, got {plans.tolist()}")

    def as_candidate(self, mean: Tensor) -> Tensor:
        """Return the vector of the plan that a mean represents; both have shape (..., d)."""
        return mean

    def widen(self, mean: list[Tensor]) -> list[Tensor]:
        """Return the mean of the first iteration for the shifted mean of the previous step.

        Both are lists of parts, which are joined along the last dimension.
        """
        return mean

    def shift_mean(self, mean: Tensor, steps: int) -> list[Tensor]:
        """Return a mean (B, d), shifted forward by ``steps`` actions.

        The last action is repeated at the end. The result is a list of parts, which are joined
        along the last dimension.
        """
        steps = min(steps, self.length)
        last = mean[:, -self.width :]
        return [mean[:, steps * self.width :], *[last] * steps]

    def shift_elites(self, elites: Tensor, steps: int, out: Tensor) -> None:
        """Replace drawn vectors by elites that are shifted forward by a number of actions.

        At the end, where a shifted elite has no actions, the drawn actions remain. At
        the start of an episode there are no elites: their numbers are NaN, and the drawn
        vectors remain.

        Args:
            elites: The elites, shape (B, K, d).
            steps: The number of actions.
            out: The drawn vectors, shape (B, K, d), modified in place.
        """
        shifted = elites[..., min(steps, self.length) * self.width :]
        # ``replaced`` is a view of the vectors.
        replaced = out[..., : shifted.shape[-1]]
        torch.where(shifted.isnan(), replaced, shifted, out=replaced)


class SplineSpace(BoxSpace):
    """Plans that are splines through a few knots."""

    def __init__(
        self, length: int, bounds: Box, std: Tensor | None, horizon: int, kind: str
    ) -> None:
        """Make a space of ``length`` knots for plans of ``horizon`` actions.

        Args:
            length: The number of knots.
            bounds: The bounds (low, high) of an action, each of shape (width,).
            std: The initial standard deviation of a knot, shape (width,), or None; see
                ``BoxSpace``.
            horizon: The number of actions of a plan.
            kind: ``"zero"``, ``"linear"`` or ``"cubic"``; see ``spline_matrix``.
        """
        super().__init__(length, bounds, std)
        self._horizon = horizon
        self._kind = kind
        # This matrix maps knots to actions. Of times that are integers, torch would make floats
        # of its default dtype, which may have fewer digits than plans.
        self._basis = self._make_matrix(torch.arange(horizon, dtype=self.first_mean.dtype))
        # This matrix maps actions to the knots of the nearest spline, by least squares.
        self._fit = torch.linalg.pinv(self._basis.double()).to(self._basis)
        # A cache of the matrices that shift knots forward, by the number of actions to shift.
        self._shifts: dict[int, Tensor] = {}

    def decode(self, vectors: Tensor) -> Tensor:
        """Return the plans (..., horizon, A) of vectors (..., d)."""
        actions = multiply(self._basis, self._split_steps(vectors))
        return actions.clamp(*self._action_bounds)

    def encode(self, plans: Tensor) -> Tensor:
        """Return the vectors (..., d) of the splines nearest to plans (..., horizon, A)."""
        return super().encode(multiply(self._fit, plans.to(self._fit)))

    def shift_mean(self, mean: Tensor, steps: int) -> list[Tensor]:
        """Return the knots of the same spline, ``steps`` actions later: a list of one part."""
        return [self._shift(mean, steps)]

    def shift_elites(self, elites: Tensor, steps: int, out: Tensor) -> None:
        """Replace drawn vectors by elites that are shifted forward by a number of actions.

        At the start of an episode the elites are NaN, and the drawn vectors remain. Both have
        shape (B, K, d).
        """
        shifted = self._shift(elites, steps)
        torch.where(shifted.isnan(), out, shifted, out=out)

    def _shift(self, vectors: Tensor, steps: int) -> Tensor:
        """Return the knots (..., d) of the same splines, ``steps`` actions later."""
        if steps not in self._shifts:
            actions_per_knot = (self._horizon - 1) / (self.length - 1)
            knots = torch.arange(self.length, dtype=self.first_mean.dtype)
            times = knots * actions_per_knot + steps
            self._shifts[steps] = self._make_matrix(times)
        return multiply(self._shifts[steps], self._split_steps(vectors)).flatten(-2)

    def _make_matrix(self, times: Tensor) -> Tensor:
        """Return the matrix that maps knots to the spline's values at times, in actions."""
        knots_per_action = (self.length - 1) / max(1, self._horizon - 1)
        return spline_matrix(times * knots_per_action, self.length, self._kind).to(
            self.first_mean
        )


class CategoricalSpace(BoxSpace):
    """Plans of integers. Each number of an action has the values 0, 1, ... up to its own limit.

    The mean of the distribution is the probability of each value. The standard deviations of
    the distribution are not used.
    """

    def __init__(self, length: int, sizes: list[int], spread: float, like: Tensor) -> None:
        """Make a space.

        Args:
            length: The number of actions per plan.
            sizes: An action consists of integers. This list has the number of values of each.
            spread: The share of the uniform distribution in the initial distribution of a step.
            like: A tensor with the dtype and device of vectors.
        """
        counts = torch.tensor(sizes, device=like.device)
        # The one-hot vectors of all integers have the same length. `is_value` marks the values
        # that exist.
        self._values = torch.arange(max(sizes), device=like.device)
        is_value = self._values < counts[:, None]  # shape (integers of an action, values)
        uniform = (is_value / counts[:, None]).to(like.dtype).flatten()
        # The elements of a one-hot vector are between 0 and 1.
        bounds = (torch.zeros_like(uniform), torch.ones_like(uniform))
        super().__init__(length, bounds, None)
        self.first_mean = uniform.repeat(length)
        # The largest value of each integer of a plan.
        self._largest = (counts - 1).repeat(length)
        self._spread = spread

    def draw(self, distribution: Tensor, size: int, key: NoiseKey) -> Tensor:
        """Draw one-hot vectors, shape (B, size, d), from distributions, shape (B, 4, d)."""
        # The mean of a one-hot vector has the probabilities of its values. The shape becomes
        # (B, integers of a plan, values).
        probabilities = distribution[:, MEAN].unflatten(-1, (-1, len(self._values)))
        # One number per integer of a plan. The distribution function of N(0, 1) makes normal
        # noise uniform in [0, 1].
        normal = self._draw_noise(probabilities[..., 0], size, key)
        uniform = torch.special.ndtr(normal)
        # Inverse transform sampling: a uniform number u becomes the first value whose
        # cumulative probability is greater than u. Its index is the number of cumulative
        # probabilities that are not.
        cumulative = probabilities.cumsum(-1).unsqueeze(1)
        values = (uniform.unsqueeze(-1) >= cumulative).sum(-1)
        # Because of rounding, the last cumulative probability may be less than 1.
        return self._indicate(torch.minimum(values, self._largest))

    def _indicate(self, values: Tensor) -> Tensor:
        """Return the one-hot vectors (..., d) of values (..., length * A)."""
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
        """Raise ValueError if a number in plans (..., horizon, A) is not one of its values."""
        values = plans.flatten(-2)
        is_value = (values == values.round()) & (values >= 0)
        if not (is_value & (values <= self._largest.cpu())).all():
            raise ValueError(f"expected {name} of the values from 0 on, got {plans.tolist()}")

    def as_candidate(self, mean: Tensor) -> Tensor:
        """Return the vector of the most likely plan."""
        return self.encode(self.decode(mean))

    def widen(self, mean: list[Tensor]) -> list[Tensor]:
        """Return the mean of the first iteration, which makes every value possible again."""
        probabilities = torch.cat(mean, dim=-1)
        return [torch.lerp(probabilities, self.first_mean, self._spread)]


def make_space(
    horizon: int, action_dim: int, block: int, bounds: Any, options: Options, like: Tensor
) -> BoxSpace:
    """Return the space of plans for actions with bounds or with discrete values.

    Args:
        horizon: The number of actions per plan.
        action_dim: The dimension of an action of the environment.
        block: The number of actions of the environment that form one action of a plan.
        bounds: The bounds or the discrete space of actions, as for ``Planner``.
        options: The options of the planner.
        like: A tensor with the dtype and device of plans.
    """
    # An action of a plan consists of `block` actions of the environment. So the sizes, bounds
    # and standard deviations of an action are repeated.
    sizes = _find_sizes(bounds)  # the numbers of values of a discrete action, or None
    if sizes is not None:
        if len(sizes) != action_dim:
            raise ValueError(
                f"expected action_dim {len(sizes)} for {bounds!r}, got {action_dim}; "
                f"for a vector environment pass its single_action_space"
            )
        if options.knots is not None:
            raise ValueError("expected real actions for knots, got discrete ones")
        # For discrete actions ``std`` is the share of the uniform distribution in the initial
        # distribution.
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


def find_action_dim(bounds: Any) -> int:
    """Return the number of numbers per action that bounds or a space of actions imply.

    Raises:
        ValueError: If the bounds are two numbers, which are the same for any dimension, or
            None, or a space whose actions are no vectors, as that of a vector environment.
    """
    sizes = _find_sizes(bounds)
    if sizes is not None:
        return len(sizes)
    low, high = _find_ends(bounds)
    shape = np.broadcast_shapes(np.shape(low), np.shape(high))
    if len(shape) != 1:
        raise ValueError(
            f"expected action_dim, or a space of vectors for bounds, got {bounds!r}"
        )
    return int(shape[0])


def _find_sizes(space: Any) -> list[int] | None:
    """Return the number of values of each number of a discrete action.

    Args:
        space: A Categorical, or a Discrete or MultiDiscrete of Gymnasium. For anything else,
            such as bounds, return None.
    """
    if isinstance(space, Categorical):
        return list(space.sizes)
    counts = getattr(space, "nvec", getattr(space, "n", None))
    # A MultiBinary has an n as well, but no start.
    if counts is None or not hasattr(space, "start"):
        return None
    if np.any(space.start):
        raise ValueError(f"expected discrete actions that start at 0, got {space!r}")
    return [int(count) for count in np.ravel(counts)]


def _find_ends(bounds: Any) -> Any:
    """Return the pair (low, high) of bounds, see ``_check_bounds``."""
    if bounds is None:
        return -math.inf, math.inf
    if hasattr(bounds, "low") or hasattr(bounds, "lb"):
        return ends_of(bounds)
    if not hasattr(bounds, "__len__") or len(bounds) != 2:
        raise TypeError(
            "expected (low, high), a Box, Bounds, a discrete space or None for bounds, "
            f"got {bounds!r}"
        )
    are_pairs = [
        isinstance(end, (list, tuple)) and len(end) == 2 and end[0] < end[1] for end in bounds
    ]
    if all(are_pairs):
        raise ValueError(
            f"expected Bounds(low, high), got {bounds!r}, which may be (low, high) or, as in "
            "minimize, a pair for each action"
        )
    return bounds


def _check_bounds(bounds: Any, shape: torch.Size, like: Tensor) -> Box:
    """Return the lower and upper bounds of an action as two tensors.

    In the dtype of plans they are rounded inwards, so that actions keep to the bounds.

    Args:
        bounds: A pair (low, high) of numbers or vectors; a Box of Gymnasium, which has ``low``
            and ``high``; SciPy's Bounds, which has ``lb`` and ``ub``; or None for no bounds.
        shape: The shape of each tensor, (A,).
        like: A tensor with the dtype and device of plans.
    """
    exact_low, exact_high = (
        check_vector("bounds", end, shape, torch.float64, like.device)
        for end in _find_ends(bounds)
    )
    low = exact_low.to(like.dtype)
    high = exact_high.to(like.dtype)
    low = torch.where(low < exact_low, low.nextafter(high), low)
    high = torch.where(high > exact_high, high.nextafter(low), high)
    if not (low < high).all():
        raise ValueError(f"expected bounds with low < high, got {bounds!r}")
    return low, high
