"""Train a Tetris controller with the cross-entropy method, and measure it beside published ones."""

from tetris.__main__ import script

main = script("train", __name__)
