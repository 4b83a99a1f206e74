"""The command ``python scripts/measure generation``."""

from measure.__main__ import script

main = script("generation", __name__)
