"""Measure again what the literature says of Tetris controllers.

python scripts/reproduce.py published --quick      # a minute on a CPU
python scripts/reproduce.py noisy_ce_bcts_10x10 --json result.json

Published controllers play by the published rule: on a GPU to 0.5 % and 5 % (95 % interval, to either side),
on a CPU to 3 % on 10x10, and on 10x20 for a minute. The searches on 10x20 are for a GPU.
"""

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from measure.cli import choice, measurement

    from tetris.commands.command_line import run

SEARCHES = [
    f"noisy_ce_{features}_{size}" for size in ("10x10", "10x20") for features in ("bertsekas", "bcts")
]
OPTIONS = {
    "experiments": {**choice("experiment", ("published", *SEARCHES)), "nargs": "*"},
    "--quick": {"action": "store_true", "help": "a look: three searches of a kind"},
}
main = measurement("reproduce", __doc__, OPTIONS, "[EXPERIMENT ...]")

if __name__ == "__main__":
    run(main)
