"""What a script needs to be a measurement; Ctrl-C while it is imported is one line."""

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from measure.table import command as command
    from tetris.commands.command_line import run as run
