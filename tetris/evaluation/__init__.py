"""Scores of controllers, played or estimated, and their tables."""
