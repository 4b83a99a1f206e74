"""The command ``python scripts/measure compare_optimizers``."""

from measure.__main__ import script

main = script("compare_optimizers", __name__)
