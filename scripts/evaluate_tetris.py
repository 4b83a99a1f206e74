"""Score controllers: lines per game with its 95 % interval, several side by side."""

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from tetris.commands.command_line import run
    from tetris.commands.evaluate import main

if __name__ == "__main__":
    run(main)
