"""Train a Tetris controller with the cross-entropy method, and measure it beside published ones."""

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from tetris.commands.command_line import run
    from tetris.commands.train import main

if __name__ == "__main__":
    run(main)
