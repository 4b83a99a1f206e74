"""Write the report of a training run again, or a page that compares several."""

from tetris.__main__ import script

main = script("report", __name__)
