"""Probabilities of rare events, ``cem.rare_event_probability``, and the families of their distributions."""

from cem.rare.families import Bernoulli, Exponential, Family, Normal, Poisson, Weibull

__all__ = ["Bernoulli", "Exponential", "Family", "Normal", "Poisson", "Weibull"]
