"""Measure the operators beside a device copy and PyTorch's own."""

from measure.benchmark_operators import main

from tetris.commands.command_line import run

if __name__ == "__main__":
    run(main)
