"""Scores of controllers, played or estimated, and their tables. Begin with `measurement.py`."""

DEFAULT_SEED = 12345
"""Seed of the pieces that scores are measured on."""
