"""The measurement env of scripts/measure."""

from measure.start import command, run

main = command("env")

if __name__ == "__main__":
    run(main)
