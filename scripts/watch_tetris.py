"""Watch a controller play, or a replay, in the terminal, or as GIF, MP4 or a web page."""

from tetris.__main__ import script

main = script("watch", __name__)
