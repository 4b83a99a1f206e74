"""Measure how fast the engines play under good controllers, in steady play."""

from measure.benchmark_tetris import main

from tetris.commands.command_line import run

if __name__ == "__main__":
    run(main)
