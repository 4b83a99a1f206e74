"""The command ``python scripts/measure sampling``: how the ways to draw a population compare."""

from measure import table
from measure.__main__ import run

main = table.command("sampling")

if __name__ == "__main__":
    run(main)
