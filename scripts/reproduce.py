"""Measure again what the literature says of Tetris controllers."""

from measure.reproduce import main

from tetris.commands.command_line import run

if __name__ == "__main__":
    run(main)
