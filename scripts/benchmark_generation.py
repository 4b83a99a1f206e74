"""The measurement generation of scripts/measure."""

from measure.start import command, run

main = command("generation")

if __name__ == "__main__":
    run(main)
