"""Run a measurement by its name.

python scripts/measure sampling --json sampling.json
python scripts/measure rollout --record         # files the result under benchmarks/results
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from kernels.support.names import unknown_name
    from measure import table
    from tetris.commands.command_line import fail, run


def main() -> int:
    """Run a measurement, or list them all."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        rows = [f"{row.name:24}{' '.join(row.devices)}" for row in table.MEASUREMENTS.values()]
        print(__doc__ or "", *rows, "", "NAME --help tells the options of one.", sep="\n")
        return 0
    if name not in table.MEASUREMENTS:
        fail(unknown_name("measurement", name, table.MEASUREMENTS))
    return table.command(name)(arguments)


if __name__ == "__main__":
    run(main)
