"""Measure a whole generation of the search, ask, objective and tell: ours and peers.

python scripts/benchmark_generation.py --json generation.json
"""

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from measure.cli import measurement

    from tetris.commands.command_line import run

main = measurement("generation", __doc__)

if __name__ == "__main__":
    run(main)
