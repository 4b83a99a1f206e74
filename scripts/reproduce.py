"""The measurement reproduce of scripts/measure."""

from measure.start import command, run

main = command("reproduce")

if __name__ == "__main__":
    run(main)
