"""Distributions with independent components: quantiles, densities, weighted maximum likelihood.

A distribution is a frozen dataclass whose fields are its parameters, float64 tensors of shape
(d,) on one device. Candidates are quantiles of uniform noise, which is a function of (seed,
generation, candidate, component) with the same bits everywhere; the functions of torch that map
it may round differently.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, distributions

from cem.core.checks import as_real
from kernels.ops.philox import philox4x32, split64

_Self = TypeVar("_Self", bound="IndependentDistribution")
# Other users of Philox in this project have other keys.
_UNIFORM_KEY = int.from_bytes(b"uniform ", "big")


def uniform_noise(
    size: int,
    dim: int,
    *,
    seed: int,
    generation: int,
    device: torch.device,
) -> Tensor:
    """Return uniform numbers in (0, 1), shape (N, d), float64: odd multiples of 2^-53.

    They are a function of seed and generation. A number depends neither on N nor on d.

    Args:
        size: N, the number of candidates.
        dim: d, the number of components of a candidate.
        seed: A number of 64 bits.
        generation: The number of the generation.
        device: The device of the result.
    """
    # Philox maps a counter to four words of 32 bits: two words for each of two candidates.
    pair = torch.arange((size + 1) // 2, device=device)
    component = torch.arange(dim, device=device)
    counter = (pair.unsqueeze(1), component, generation, 0)
    key = split64(seed ^ _UNIFORM_KEY)
    upper_1, lower_1, upper_2, lower_2 = philox4x32(counter, key)
    upper = torch.stack([upper_1, upper_2], dim=1)  # (pairs, 2, d)
    lower = torch.stack([lower_1, lower_2], dim=1)
    # The upper 52 of the 64 bits: with half a step added, a double holds them exactly.
    bits = upper << 20 | lower >> 12
    bits_of_candidates = bits.view(-1, dim)[:size]  # an odd N needs half of the last pair
    return (bits_of_candidates.double() + 0.5) * 2.0**-52


class IndependentDistribution:
    """A distribution with independent components, whose fields are its parameters."""

    LAW: ClassVar[Callable[..., distributions.Distribution]]  # a function of the parameters

    def __post_init__(self) -> None:
        """Make float64 tensors of the parameters, of one shape (d,) and on one device."""
        tensors = {name: as_real(name, x).double() for name, x in self.parameters.items()}
        device = next((tensor.device for tensor in tensors.values() if tensor.dim()), None)
        shape = torch.broadcast_shapes((1,), *(tensor.shape for tensor in tensors.values()))
        for name, tensor in tensors.items():
            if len(shape) != 1 or not tensor.isfinite().all():
                raise ValueError(f"expected finite {name} of shape (d,), got {tensor.tolist()}")
            object.__setattr__(self, name, tensor.to(device).expand(shape).contiguous())
        _ = self.law  # raises ValueError if a parameter is out of its range

    @property
    def law(self) -> distributions.Distribution:
        """The distributions of the components."""
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
        """Return N candidates, shape (N, d), which are a function of (seed, generation)."""
        first, *_ = self.parameters.values()
        noise_key: Any = {"seed": seed, "generation": generation}
        return self.quantile(uniform_noise(size, len(first), device=first.device, **noise_key))

    def quantile(self, u: Tensor) -> Tensor:
        """Return the quantiles of each component at 0 < u < 1, shape (N, d)."""
        return self.law.icdf(u)

    def log_density(self, x: Tensor) -> Tensor:
        """Return the logarithms of the densities, or probabilities, of candidates (N, d)."""
        return self.law.log_prob(x).sum(-1)

    def fit(self: _Self, x: Tensor, weights: Tensor) -> _Self:
        """Return the distribution of the family that makes candidates (N, d) likeliest.

        Its mean is theirs. The weights of the candidates, shape (N,), sum to 1.
        """
        mean = (weights @ x).clamp(x.amin(0), x.amax(0))  # a mean of ones may be rounded up
        return type(self)(mean)  # type: ignore[call-arg]

    def mixed(self: _Self, other: _Self, share: float) -> _Self:
        """Return the member whose parameters lie between these and another's.

        ``share`` is the weight of the other's parameters.
        """
        ends = other.parameters
        mixed = {name: value.lerp(ends[name], share) for name, value in self.parameters.items()}
        return replace(self, **mixed)  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class Exponential(IndependentDistribution):
    """Exponential distributions by their means."""

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
        """Return the member of greatest likelihood: scale^shape is the mean of x^shape."""
        return Weibull(self.shape, (weights @ x**self.shape) ** (1 / self.shape))


@dataclass(frozen=True, eq=False)
class Normal(IndependentDistribution):
    """Normal distributions. A fit keeps the standard deviation unless ``fit_std``."""

    mean: Any
    std: Any
    fit_std: bool = False
    LAW = distributions.Normal

    def fit(self, x: Tensor, weights: Tensor) -> "Normal":
        """Return the member of greatest likelihood, by the weighted mean and variance."""
        mean = weights @ x
        std = self.std
        if self.fit_std:
            std = (weights @ (x - mean).square()).sqrt().clamp(min=1e-300)
        return Normal(mean, std, self.fit_std)


@dataclass(frozen=True, eq=False)
class Poisson(IndependentDistribution):
    """Poisson distributions by their rates.

    To draw takes memory for d times the greatest rate.
    """

    rate: Any
    LAW = distributions.Poisson

    def quantile(self, u: Tensor) -> Tensor:
        """Return the least counts whose distribution function is at least u."""
        greatest = float(self.rate.max())
        # The probability of a greater count is below 1e-16.
        greatest_count = int(greatest + 12 * greatest**0.5 + 30)
        count = torch.arange(greatest_count, device=u.device)
        cdf = distributions.Poisson(self.rate.unsqueeze(1)).log_prob(count).exp().cumsum(1)
        return Tensor.double(torch.searchsorted(cdf, u.T.contiguous()).T)


@dataclass(frozen=True, eq=False)
class Bernoulli(IndependentDistribution):
    """Components that are 1 with probability p, otherwise 0."""

    p: Any
    LAW = distributions.Bernoulli

    def quantile(self, u: Tensor) -> Tensor:
        """Return 1 where u > 1 - p, otherwise 0."""
        return torch.gt(u, 1 - self.p).double()
