"""Scores of controllers, played or estimated, and their tables."""

DEFAULT_SEED = 12345
"""Seed of the pieces that scores are measured on."""
