"""The command ``python scripts/measure sampling``: how the ways to draw a population compare."""

import sys

from measure.__main__ import main, run

if __name__ == "__main__":
    sys.argv[1:1] = ["sampling"]
    run(main)
