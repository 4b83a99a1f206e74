"""Train a Tetris controller with the cross-entropy method, and compare it with others."""

from tetris.__main__ import script

main = script("train", __name__)
