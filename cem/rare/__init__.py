"""Probabilities of rare events, and distributions for them. Start with `event.py`."""

from cem.rare.distributions import Bernoulli, Exponential, Normal, Poisson, Weibull
from cem.rare.distributions import IndependentDistribution as Family

__all__ = ["Bernoulli", "Exponential", "Family", "Normal", "Poisson", "Weibull"]
