"""The measurement operators of scripts/measure."""

from measure.start import command, run

main = command("operators")

if __name__ == "__main__":
    run(main)
