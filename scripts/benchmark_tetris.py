"""The measurement benchmark_tetris of scripts/measure."""

from measure.start import command, run

main = command("benchmark_tetris")

if __name__ == "__main__":
    run(main)
