"""Run one measurement by the name of its module: python scripts/measure equality --json equality.json."""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.interrupts import one_line_interrupts

with one_line_interrupts():
    from kernels.names import unknown_name
    from tetris.commands.command_line import fail, run

MODULES = (
    "bbob",
    "compare_mdptetris",
    "compare_peers",
    "equality",
    "heights",
    "large_generation",
    "lookahead",
    "next_piece",
    "original_rule",
    "other_rules",
    "ppo",
    "record",
    "sanitizers",
    "scale",
    "training",
    "two_pieces",
)


def main(name: str, arguments: Sequence[str]) -> int:
    """Run a measurement, or list them all."""
    if name in ("-h", "--help"):
        print(__doc__, "", *MODULES, "", "NAME --help tells the options of one.", sep="\n")
        return 0
    if name not in MODULES:
        fail(unknown_name("measurement", name, MODULES))
    return int(import_module(f"measure.{name}").main(arguments))


if __name__ == "__main__":
    name, *arguments = sys.argv[1:] or [""]
    run(lambda: main(name, arguments))
