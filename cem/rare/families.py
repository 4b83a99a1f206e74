"""Parametric families of independent components: quantiles, densities, weighted maximum likelihood.

A member of a family is a frozen dataclass whose fields are its parameters, float64 tensors of shape (d,) on
one device. Candidates are quantiles of uniform noise, which is a function of (seed, generation, candidate,
component) with the same bits everywhere; the functions of torch that map it may round differently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, distributions

from cem.core.checks import as_real
from kernels.ops.philox import philox4x32, split64

_Member = TypeVar("_Member", bound="Family")
_DOMAIN = int.from_bytes(b"uniform ", "big")  # other users of Philox in this project have other keys


def uniform_noise(size: int, dim: int, *, seed: int, generation: int, device: torch.device) -> Tensor:
    """Return odd multiples of 2^-53 in (0, 1), shape (N, d); a number depends neither on N nor on d."""
    pair, component = torch.arange((size + 1) // 2, device=device), torch.arange(dim, device=device)
    a, b, c, d = philox4x32((pair.unsqueeze(1), component, generation, 0), split64(seed ^ _DOMAIN))
    upper, lower = torch.stack([a, c], dim=1), torch.stack([b, d], dim=1)  # (pair, which of the two, d)
    return ((upper << 20 | lower >> 12).view(-1, dim)[:size].double() + 0.5) * 2.0**-52


class Family:
    """A distribution with independent components; a dataclass, the fields of which are its parameters."""

    LAW: ClassVar[Callable[..., distributions.Distribution]]  # of the parameters

    def __post_init__(self) -> None:
        """Make float64 tensors of the parameters, of one shape (d,) and on one device, and check them."""
        given = {name: as_real(name, value).double() for name, value in self.parameters.items()}
        device = next((value.device for value in given.values() if value.dim()), None)
        shape = torch.broadcast_shapes((1,), *(value.shape for value in given.values()))
        for name, value in given.items():
            if len(shape) != 1 or not bool(value.isfinite().all()):
                raise ValueError(f"expected finite {name} of shape (d,), got {value.tolist()}")
            object.__setattr__(self, name, value.to(device).expand(shape).contiguous())
        _ = self.law  # raises ValueError where a parameter is out of its range

    @property
    def law(self) -> distributions.Distribution:
        """The distributions of the components."""
        return type(self).LAW(*self.parameters.values(), validate_args=True)

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The parameters by name, each of shape (d,)."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in found.items() if not isinstance(value, bool)}

    def sample(self, size: int, *, seed: int, generation: int = 0) -> Tensor:
        """Return candidates, shape (N, d), a function of (seed, generation)."""
        first, *_ = self.parameters.values()
        u = uniform_noise(size, len(first), seed=seed, generation=generation, device=first.device)
        return self.quantile(u)

    def quantile(self, u: Tensor) -> Tensor:
        """Return the quantiles of each component at 0 < u < 1, shape (N, d)."""
        return self.law.icdf(u)

    def log_density(self, x: Tensor) -> Tensor:
        """Return the logarithm of the density, or of the probability, of candidates (N, d); shape (N,)."""
        return self.law.log_prob(x).sum(-1)

    def fit(self: _Member, x: Tensor, weights: Tensor) -> _Member:
        """Return the greatest likelihood of candidates, with weights (N,) that sum to 1: here their mean."""
        mean = (weights @ x).clamp(x.amin(0), x.amax(0))  # it may be rounded to more than 1
        return type(self)(mean)  # type: ignore[call-arg]

    def mixed(self: _Member, other: _Member, share: float) -> _Member:
        """Return the member whose parameters are 1 - share of these and a share of another's."""
        mine, theirs = self.parameters, other.parameters
        return replace(self, **{name: mine[name].lerp(theirs[name], share) for name in mine})  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class Exponential(Family):
    """Exponential distributions by their means."""

    mean: Any
    LAW = staticmethod(lambda mean, **options: distributions.Exponential(1 / mean, **options))


@dataclass(frozen=True, eq=False)
class Weibull(Family):
    """Weibull distributions: P(X > x) = exp(-(x / scale)^shape). A fit keeps the shape."""

    shape: Any
    scale: Any
    LAW = staticmethod(lambda shape, scale, **options: distributions.Weibull(scale, shape, **options))

    def fit(self, x: Tensor, weights: Tensor) -> Weibull:
        """Return the greatest likelihood: scale^shape is the weighted mean of x^shape."""
        return Weibull(self.shape, (weights @ x**self.shape) ** (1 / self.shape))


@dataclass(frozen=True, eq=False)
class Normal(Family):
    """Normal distributions. A fit keeps the standard deviation unless ``fit_std``."""

    mean: Any
    std: Any
    fit_std: bool = False
    LAW = distributions.Normal

    def fit(self, x: Tensor, weights: Tensor) -> Normal:
        """Return the greatest likelihood: the weighted mean and, with ``fit_std``, standard deviation."""
        mean = weights @ x
        std = (weights @ (x - mean).square()).sqrt().clamp(min=1e-300) if self.fit_std else self.std
        return Normal(mean, std, self.fit_std)


@dataclass(frozen=True, eq=False)
class Poisson(Family):
    """Poisson distributions by their rates; to draw takes memory for d times the greatest rate."""

    rate: Any
    LAW = distributions.Poisson

    def quantile(self, u: Tensor) -> Tensor:
        """Return the least counts whose distribution function is at least u."""
        most = float(self.rate.max())
        count = torch.arange(int(most + 12 * most**0.5 + 30), device=u.device)  # beyond: below 1e-16
        cdf = distributions.Poisson(self.rate.unsqueeze(1)).log_prob(count).exp().cumsum(1)
        return Tensor.double(torch.searchsorted(cdf, u.T.contiguous()).T)


@dataclass(frozen=True, eq=False)
class Bernoulli(Family):
    """Components that are 1 with probability p, otherwise 0."""

    p: Any
    LAW = distributions.Bernoulli

    def quantile(self, u: Tensor) -> Tensor:
        """Return 1 where u > 1 - p, otherwise 0."""
        return torch.gt(u, 1 - self.p).double()
