"""The command ``python scripts/measure env``."""

from measure.__main__ import script

main = script("env", __name__)
