"""The version of the distribution ``cem-tetris``; pyproject.toml reads it here."""

__version__ = "0.1.0"
