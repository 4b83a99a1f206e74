"""The command ``python scripts/measure reproduce``."""

from measure.__main__ import script

main = script("reproduce", __name__)
