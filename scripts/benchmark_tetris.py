"""The measurement benchmark_tetris of scripts/measure."""

from kernels.interrupts import one_line_interrupts

with one_line_interrupts():
    from measure.table import command

    from tetris.commands.command_line import run

main = command("benchmark_tetris")

if __name__ == "__main__":
    run(main)
