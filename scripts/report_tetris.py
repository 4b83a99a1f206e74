"""Write the report of a training run again, or a page that compares several."""

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from tetris.commands.command_line import run
    from tetris.commands.report import main

if __name__ == "__main__":
    run(main)
