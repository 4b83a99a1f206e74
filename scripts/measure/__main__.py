"""Run one measurement by the name of its module: python scripts/measure equality --json equality.json."""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from kernels.support.names import unknown_name
    from tetris.commands.command_line import fail, run

MODULES = (
    "bbob",
    "compare_mdptetris",
    "compare_peers",
    "equality",
    "heights",
    "kills",
    "large_generation",
    "limits",
    "lookahead",
    "next_piece",
    "original_rule",
    "other_rules",
    "planner",
    "ppo",
    "record",
    "reliability",
    "sanitizers",
    "scale",
    "second_chance",
    "soak",
    "time_to_target",
    "training",
    "two_pieces",
    "worst_pieces",
)


def main(name: str, arguments: Sequence[str]) -> int:
    """Run a measurement, or list them all."""
    if name in ("-h", "--help"):
        print(__doc__ or "", "", *MODULES, "", "NAME --help tells the options of one.", sep="\n")
        return 0
    if name not in MODULES:
        fail(unknown_name("measurement", name, MODULES))
    return int(import_module(f"measure.{name}").main(arguments))


if __name__ == "__main__":
    name, *arguments = sys.argv[1:] or [""]
    run(lambda: main(name, arguments))
