"""Compare the optimiser with ten lines of NumPy and PyTorch, evotorch, cmaes and pycma.

python scripts/compare_optimizers.py --json optimizers.json
python scripts/compare_optimizers.py speed --device cuda

quality: the share of BBOB's targets that are reached. speed: microseconds of a generation on the sphere.
behaviour: fitness that fails, is flat or integer, bounds, and resumption. Peers that are not installed are
left out: pip install cma cmaes evotorch
"""

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from measure.cli import choice, measurement

    from tetris.commands.command_line import run, up_to

OPTIONS = {
    "parts": {**choice("part", ("quality", "speed", "behaviour")), "nargs": "*"},
    "--jobs": {"type": up_to(1024), "default": 1, "help": "processes for the quality (default: 1)"},
}
main = measurement("compare_optimizers", __doc__, OPTIONS, "[PART ...]")

if __name__ == "__main__":
    run(main)
