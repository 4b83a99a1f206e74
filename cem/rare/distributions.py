"""Distributions with independent components: quantiles, densities, weighted maximum likelihood.

A distribution is a frozen dataclass whose fields are its parameters, float64 tensors of shape
(d,) on one device. Candidates are quantiles of uniform noise. The noise is a function of (seed,
generation, candidate, component), with the same bits on every machine. The functions of torch
that map it to quantiles may be rounded differently on another machine.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, distributions

from cem.core.checks import as_real
from kernels.ops.philox import philox4x32, split64

_Self = TypeVar("_Self", bound="IndependentDistribution")
# Philox is used elsewhere in this project, with other keys.
_UNIFORM_KEY = int.from_bytes(b"uniform ", "big")


def uniform_noise(
    size: int,
    dim: int,
    *,
    seed: int,
    generation: int,
    device: torch.device,
) -> Tensor:
    """Return uniform random numbers in (0, 1), shape (N, d), float64.

    They are odd multiples of 2^-53. Each number is a function of the seed, the generation and
    its position, and depends neither on N nor on d.

    Args:
        size: N, the number of candidates.
        dim: d, the number of components of a candidate.
        seed: An integer of 64 bits.
        generation: The number of the generation.
        device: The device of the result.
    """
    # Philox maps a counter to four words of 32 bits. Two words form one number, so each counter
    # gives two numbers: one component of two candidates, which form a pair.
    pair = torch.arange((size + 1) // 2, device=device)
    component = torch.arange(dim, device=device)
    counter = (pair.unsqueeze(1), component, generation, 0)
    key = split64(seed ^ _UNIFORM_KEY)
    # The upper and lower words of the two numbers, each of shape (pairs, d).
    upper_1, lower_1, upper_2, lower_2 = philox4x32(counter, key)
    upper = torch.stack([upper_1, upper_2], dim=1)  # shape (pairs, 2, d)
    lower = torch.stack([lower_1, lower_2], dim=1)
    # Only the upper 52 of the 64 bits are used. A double represents them exactly, even after
    # 0.5 is added, which excludes 0.
    bits = (upper << 20) | (lower >> 12)
    # If N is odd, the second candidate of the last pair is dropped.
    bits_of_candidates = bits.view(-1, dim)[:size]
    return (bits_of_candidates.double() + 0.5) * 2.0**-52


class IndependentDistribution:
    """A distribution with independent components. The fields of a subclass are parameters."""

    LAW: ClassVar[Callable[..., distributions.Distribution]]
    """Makes torch's distribution of the components from the parameters."""

    def __post_init__(self) -> None:
        """Convert the parameters to float64 tensors of one shape (d,) on one device.

        Raises:
            ValueError: If a parameter is not finite or out of its range.
        """
        tensors = {name: as_real(name, x).double() for name, x in self.parameters.items()}
        # A plain number has no dimension. It is moved to the device of the first array.
        device = next((tensor.device for tensor in tensors.values() if tensor.dim()), None)
        shape = torch.broadcast_shapes((1,), *(tensor.shape for tensor in tensors.values()))
        for name, tensor in tensors.items():
            if len(shape) != 1 or not tensor.isfinite().all():
                raise ValueError(f"expected finite {name} of shape (d,), got {tensor.tolist()}")
            object.__setattr__(self, name, tensor.to(device).expand(shape).contiguous())
        _ = self.law  # this checks the ranges of the parameters

    @property
    def law(self) -> distributions.Distribution:
        """The distributions of the components, as a distribution of torch."""
        return type(self).LAW(*self.parameters.values(), validate_args=True)

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The parameters by name, of shape (d,): all fields that are not flags."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if not isinstance(value, bool)}

    @property
    def is_discrete(self) -> bool:
        """Whether the components have a discrete distribution."""
        return self.law.support.is_discrete  # type: ignore[union-attr]

    def sample(self, size: int, *, seed: int, generation: int = 0) -> Tensor:
        """Draw ``size`` candidates, shape (N, d), a function of (seed, generation)."""
        first, *_ = self.parameters.values()
        noise_key: Any = {"seed": seed, "generation": generation}
        return self.quantile(uniform_noise(size, len(first), device=first.device, **noise_key))

    def quantile(self, u: Tensor) -> Tensor:
        """Return the quantiles of each component for 0 < u < 1, shape (N, d)."""
        return self.law.icdf(u)

    def log_density(self, x: Tensor) -> Tensor:
        """Return the log densities, or log probabilities, of candidates (N, d), shape (N,)."""
        return self.law.log_prob(x).sum(-1)

    def fit(self: _Self, x: Tensor, weights: Tensor) -> _Self:
        """Return the maximum likelihood fit to candidates (N, d): it has their mean.

        The weights of the candidates, shape (N,), sum to 1.
        """
        # Without the clamp the mean of ones might be rounded to more than 1.
        mean = (weights @ x).clamp(x.amin(0), x.amax(0))
        return type(self)(mean)  # type: ignore[call-arg]

    def mixed(self: _Self, other: _Self, share: float) -> _Self:
        """Return a member whose parameters are interpolated between this and another member.

        ``share`` is the weight of the other member's parameters.
        """
        ends = other.parameters
        mixed = {name: value.lerp(ends[name], share) for name, value in self.parameters.items()}
        return replace(self, **mixed)  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class Exponential(IndependentDistribution):
    """Exponential distributions with given means."""

    mean: Any
    LAW = staticmethod(lambda mean, **options: distributions.Exponential(1 / mean, **options))


@dataclass(frozen=True, eq=False)
class Weibull(IndependentDistribution):
    """Weibull distributions: P(X > x) = exp(-(x / scale)^shape). A fit keeps the shape."""

    shape: Any
    scale: Any
    LAW = staticmethod(
        lambda shape, scale, **options: distributions.Weibull(scale, shape, **options),
    )

    def fit(self, x: Tensor, weights: Tensor) -> "Weibull":
        """Return the maximum likelihood fit: scale^shape is the mean of x^shape."""
        return Weibull(self.shape, (weights @ x**self.shape) ** (1 / self.shape))


@dataclass(frozen=True, eq=False)
class Normal(IndependentDistribution):
    """Normal distributions. A fit keeps the standard deviation unless ``fit_std``."""

    mean: Any
    std: Any
    fit_std: bool = False
    LAW = distributions.Normal

    def fit(self, x: Tensor, weights: Tensor) -> "Normal":
        """Return the maximum likelihood fit, from the weighted mean and variance."""
        mean = weights @ x
        std = self.std
        if self.fit_std:
            std = (weights @ (x - mean).square()).sqrt().clamp(min=1e-300)
        return Normal(mean, std, self.fit_std)


@dataclass(frozen=True, eq=False)
class Poisson(IndependentDistribution):
    """Poisson distributions with given rates.

    The memory for drawing is proportional to d times the greatest rate.
    """

    rate: Any
    LAW = distributions.Poisson

    def quantile(self, u: Tensor) -> Tensor:
        """Return the smallest counts whose distribution function is at least u."""
        greatest_rate = float(self.rate.max())
        # The probability of a greater count is below 1e-16.
        greatest_count = int(greatest_rate + 12 * greatest_rate**0.5 + 30)
        # Of integers, torch computes logarithms in its default dtype.
        count = torch.arange(greatest_count, dtype=torch.float64, device=u.device)
        # The distribution functions of the d components, shape (d, counts).
        cdf = distributions.Poisson(self.rate.unsqueeze(1)).log_prob(count).exp().cumsum(1)
        return Tensor.double(torch.searchsorted(cdf, u.T.contiguous()).T)


@dataclass(frozen=True, eq=False)
class Bernoulli(IndependentDistribution):
    """Components that are 1 with probability p, and 0 otherwise."""

    p: Any
    LAW = distributions.Bernoulli

    def quantile(self, u: Tensor) -> Tensor:
        """Return 1 where u > 1 - p, otherwise 0."""
        return torch.gt(u, 1 - self.p).double()
