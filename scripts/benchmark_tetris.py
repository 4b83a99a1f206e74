"""The command ``python scripts/measure benchmark_tetris``."""

from measure.__main__ import script

main = script("benchmark_tetris", __name__)
