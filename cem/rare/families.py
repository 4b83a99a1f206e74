"""Parametric families of independent components: quantiles, densities, weighted maximum likelihood.

A member of a family is a frozen dataclass whose fields are its parameters, float64 tensors of shape (d,) on
one device. Candidates are quantiles of uniform noise, a pure function of (seed, generation, candidate,
component): the same on every device but for the rounding of its logarithms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor
from torch.distributions import constraints

from cem.core.checks import as_real
from kernels.ops.philox import philox4x32, split64

_Member = TypeVar("_Member", bound="Family")
_TINY = torch.finfo(torch.float64).tiny
_DOMAIN = int.from_bytes(b"uniform ", "big")  # other users of Philox in this project have other keys


def uniform_noise(
    shape: tuple[int, int], *, seed: int, generation: int, device: torch.device | None = None
) -> Tensor:
    """Return uniform numbers of shape (N, d), odd multiples of 2^-53 in (0, 1), the same bits on any device.

    A number depends neither on N nor on d; N < 2**33, 0 <= seed < 2**64, 0 <= generation < 2**32.
    """
    size, dim = shape
    pair, component = torch.arange((size + 1) // 2, device=device), torch.arange(dim, device=device)
    a, b, c, d = philox4x32((pair.unsqueeze(1), component, generation, 0), split64(seed ^ _DOMAIN))
    upper, lower = torch.stack([a, c], dim=1), torch.stack([b, d], dim=1)
    bits = (upper << 20 | lower >> 12).view(-1, dim)[:size]
    return (bits.double() + 0.5) * 2.0**-52


class Family(ABC):
    """A distribution of independent components; a family of one's own has the three abstract methods."""

    CONSTRAINTS: ClassVar[dict[str, Any]]
    """The constraint on each parameter, of ``torch.distributions.constraints``."""

    def __post_init__(self) -> None:
        """Make float64 tensors of the parameters, of one shape (d,) and on one device, and check them."""
        given = {name: as_real(name, getattr(self, name)).double() for name in self.CONSTRAINTS}
        device = next((value.device for value in given.values() if value.dim()), None)
        shape = torch.broadcast_shapes((1,), *(value.shape for value in given.values()))
        for name, value in given.items():
            wanted = self.CONSTRAINTS[name]
            if len(shape) != 1 or not bool((wanted.check(value) & value.isfinite()).all()):
                raise ValueError(f"expected {name} of shape (d,), finite, {wanted}, got {value.tolist()}")
            object.__setattr__(self, name, value.to(device).expand(shape).contiguous())

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The parameters by name, each of shape (d,)."""
        return {name: getattr(self, name) for name in self.CONSTRAINTS}

    def sample(self, size: int, *, seed: int, generation: int = 0) -> Tensor:
        """Return candidates, shape (size, d), a function of (seed, generation)."""
        first = next(iter(self.parameters.values()))
        noise = uniform_noise((size, len(first)), seed=seed, generation=generation, device=first.device)
        return self.quantile(noise)

    def mixed(self: _Member, other: _Member, share: float) -> _Member:
        """Return the member whose parameters have a share of those of another."""
        mine, theirs = self.parameters, other.parameters
        return replace(self, **{name: mine[name].lerp(theirs[name], share) for name in mine})  # type: ignore[type-var]

    @abstractmethod
    def quantile(self, u: Tensor) -> Tensor:
        """Return the quantile of each component at u, 0 < u < 1; shape (N, d)."""

    @abstractmethod
    def log_density(self, x: Tensor) -> Tensor:
        """Return the logarithm of the density, or probability, of candidates; shape (N,)."""

    @abstractmethod
    def fit(self: _Member, x: Tensor, weights: Tensor) -> _Member:
        """Return the member with the greatest likelihood of candidates with weights, which sum to 1."""


@dataclass(frozen=True, eq=False)
class Exponential(Family):
    """Exponential distributions of a mean > 0."""

    mean: Any
    CONSTRAINTS = {"mean": constraints.positive}

    def quantile(self, u: Tensor) -> Tensor:
        return -self.mean * u.log()

    def log_density(self, x: Tensor) -> Tensor:
        return -(x / self.mean + self.mean.log()).sum(-1)

    def fit(self, x: Tensor, weights: Tensor) -> Exponential:
        return Exponential(weights @ x)


@dataclass(frozen=True, eq=False)
class Weibull(Family):
    """Weibull distributions, P(X > x) = exp(-(x / scale)^shape); a fit keeps the shape."""

    shape: Any
    scale: Any
    CONSTRAINTS = {"shape": constraints.positive, "scale": constraints.positive}

    def quantile(self, u: Tensor) -> Tensor:
        return self.scale * (-u.log()) ** (1 / self.shape)

    def log_density(self, x: Tensor) -> Tensor:
        z = x / self.scale
        return ((self.shape / self.scale).log() + (self.shape - 1) * z.log() - z**self.shape).sum(-1)

    def fit(self, x: Tensor, weights: Tensor) -> Weibull:
        return Weibull(self.shape, (weights @ x**self.shape) ** (1 / self.shape))


@dataclass(frozen=True, eq=False)
class Normal(Family):
    """Normal distributions; a fit keeps the standard deviation unless ``fit_std``."""

    mean: Any
    std: Any
    fit_std: bool = False
    CONSTRAINTS = {"mean": constraints.real, "std": constraints.positive}

    def quantile(self, u: Tensor) -> Tensor:
        return self.mean + self.std * torch.special.ndtri(u)

    def log_density(self, x: Tensor) -> Tensor:
        z = (x - self.mean) / self.std
        return -(0.5 * z.square() + self.std.log()).sum(-1)

    def fit(self, x: Tensor, weights: Tensor) -> Normal:
        mean = weights @ x
        if not self.fit_std:
            return Normal(mean, self.std)
        return Normal(mean, (weights @ (x - mean).square()).sqrt().clamp(min=_TINY), fit_std=True)


@dataclass(frozen=True, eq=False)
class Poisson(Family):
    """Poisson distributions of a rate >= 0; to draw takes memory in proportion to the greatest rate."""

    rate: Any
    CONSTRAINTS = {"rate": constraints.nonnegative}

    def quantile(self, u: Tensor) -> Tensor:
        most = float(self.rate.max())
        count = torch.arange(int(most + 12 * most**0.5 + 30), device=u.device)
        rate = self.rate.unsqueeze(1)
        cdf = (torch.xlogy(count, rate) - rate - torch.lgamma(count + 1.0)).exp().cumsum(1)
        return torch.searchsorted(cdf, u.T.contiguous()).T.to(u.dtype)

    def log_density(self, x: Tensor) -> Tensor:
        return (torch.xlogy(x, self.rate) - self.rate - torch.lgamma(x + 1)).sum(-1)

    def fit(self, x: Tensor, weights: Tensor) -> Poisson:
        return Poisson(weights @ x)


@dataclass(frozen=True, eq=False)
class Bernoulli(Family):
    """Components that are 1 with probability p, otherwise 0."""

    p: Any
    CONSTRAINTS = {"p": constraints.unit_interval}

    def quantile(self, u: Tensor) -> Tensor:
        return (u > 1 - self.p).to(u.dtype)

    def log_density(self, x: Tensor) -> Tensor:
        return (torch.xlogy(x, self.p) + torch.xlogy(1 - x, 1 - self.p)).sum(-1)

    def fit(self, x: Tensor, weights: Tensor) -> Bernoulli:
        return Bernoulli((weights @ x).clamp(max=1.0))
