"""Score controllers: lines per game with its 95 % interval, several side by side."""

from tetris.__main__ import script

main = script("evaluate", __name__)
