"""The measurement sampling of scripts/measure."""

from measure.start import command, run

main = command("sampling")

if __name__ == "__main__":
    run(main)
