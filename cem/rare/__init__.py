"""Probabilities of rare events and the families of their distributions. Begin with `event.py`."""

from cem.rare.families import Bernoulli, Exponential, Family, Normal, Poisson, Weibull

__all__ = ["Bernoulli", "Exponential", "Family", "Normal", "Poisson", "Weibull"]
