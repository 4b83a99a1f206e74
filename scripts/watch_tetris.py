"""Watch a controller play, or a replay, in the terminal; or write it as GIF, MP4 or a web page."""

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from tetris.commands.command_line import run
    from tetris.commands.watch import main

if __name__ == "__main__":
    run(main)
