"""Solve Tetris on a small board: the lines per game of perfect play."""

from tetris.__main__ import script

main = script("solve", __name__)
