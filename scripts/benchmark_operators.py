"""The command ``python scripts/measure operators``."""

from measure.__main__ import script

main = script("operators", __name__)
