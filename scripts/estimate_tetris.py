"""Estimate lines per game of controllers that rarely lose, by importance splitting."""

from tetris.__main__ import script

main = script("estimate", __name__)
