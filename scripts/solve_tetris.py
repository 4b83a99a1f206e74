"""Solve Tetris on a small board: the lines a game of perfect play."""

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from tetris.commands.command_line import run
    from tetris.commands.solve import main

if __name__ == "__main__":
    run(main)
