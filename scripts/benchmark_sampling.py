"""The command ``python scripts/measure sampling``."""

from measure.__main__ import script

main = script("sampling", __name__)
