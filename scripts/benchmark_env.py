"""Measure how many pieces a second the Gymnasium environments place in random play.

python scripts/benchmark_env.py --num-envs 1024
"""

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from measure.cli import LENGTH, measurement

    from tetris.commands.command_line import run, up_to

GAMES = {"type": up_to(1 << 20), "default": 1024, "help": "on the CPU (default: 1024)"}
main = measurement("benchmark_env", __doc__, {"--num-envs": GAMES, **LENGTH})

if __name__ == "__main__":
    run(main)
