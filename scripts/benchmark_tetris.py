"""Measure how fast the engines play under good controllers, in steady play.

python scripts/benchmark_tetris.py --json speed.json
"""

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from measure.cli import LENGTH, measurement

    from tetris.commands.arguments import DEFAULT_BOARD
    from tetris.commands.command_line import run
    from tetris.devices import DEVICES

NAMES = "by name, files or run folders, each of another feature set (default: dt20 bcts)"
BOARD = f"columns x rows (default: {DEFAULT_BOARD})"
OPTIONS = {
    "controllers": {"nargs": "*", "default": ("dt20", "bcts"), "help": NAMES},
    "--board": {"default": DEFAULT_BOARD, "metavar": "WxH", "help": BOARD},
    **LENGTH,
}
main = measurement("benchmark_tetris", __doc__, OPTIONS, "[CONTROLLER ...]", DEVICES)

if __name__ == "__main__":
    run(main)
