"""Measure how fast populations are drawn: PyTorch's own ways, torch.compile, and this project's kernel.

python scripts/benchmark_sampling.py --json sampling.json
"""

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from measure.cli import measurement

    from tetris.commands.command_line import run

main = measurement("benchmark_sampling", __doc__)

if __name__ == "__main__":
    run(main)
