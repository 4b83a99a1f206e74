"""The command ``python scripts/measure coco``."""

from measure.__main__ import script

main = script("coco", __name__)
