"""The measurement compare_optimizers of scripts/measure."""

from measure.start import command, run

main = command("compare_optimizers")

if __name__ == "__main__":
    run(main)
