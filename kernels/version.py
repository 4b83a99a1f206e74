"""The version and the address of the distribution ``cem-tetris``."""

__version__ = "0.1.0"
"""The version, which pyproject.toml reads here."""

REPOSITORY = ""
"""The address of the public repository; empty as long as there is none.

The site, the wheel, the notebook, README, and the pages of games and reports link to it.
"""
