"""Measure how many pieces a second the Gymnasium environments place in random play."""

from measure.benchmark_env import main

from tetris.commands.command_line import run

if __name__ == "__main__":
    run(main)
