"""The command ``python scripts/measure rollout``: decisions per second of the engines."""

import sys

from measure.__main__ import main, run

if __name__ == "__main__":
    sys.argv[1:1] = ["rollout"]
    run(main)
