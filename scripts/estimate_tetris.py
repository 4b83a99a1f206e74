"""Estimate lines per game of controllers that hardly ever lose, by importance splitting."""

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from tetris.commands.command_line import run
    from tetris.commands.estimate import main

if __name__ == "__main__":
    run(main)
