"""The command ``python scripts/measure rollout``: decisions per second of the engines."""

from measure import table
from measure.__main__ import run

main = table.command("rollout")

if __name__ == "__main__":
    run(main)
