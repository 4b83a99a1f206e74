"""Measure how fast populations are drawn: PyTorch's own ways, torch.compile, and this project's kernel."""

from measure.benchmark_sampling import main

from tetris.commands.command_line import run

if __name__ == "__main__":
    run(main)
