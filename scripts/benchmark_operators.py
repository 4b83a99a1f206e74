"""Measure the operators: elementwise ones beside a device copy and PyTorch's own, LLTM beside plain PyTorch.

python scripts/benchmark_operators.py --json operators.json

LLTM is measured as the tutorial "Custom C++ and CUDA Extensions" does it: the forward pass, and the backward
pass from the sum of both results, are timed by themselves, each from its call until the device is done.
"""

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from measure.cli import measurement

    from tetris.commands.command_line import run

main = measurement("benchmark_operators", __doc__)

if __name__ == "__main__":
    run(main)
