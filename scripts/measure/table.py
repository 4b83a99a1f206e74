"""The table of measurements, and the command that runs one of them.

A measurement is the function `measure` of a module in this package. It takes arguments and a
device, and returns figures and data. A row of the table has the name of a measurement, which is
also the name of its result file.
"""

import argparse
import ast
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kernels import BuildError
from kernels.support.files import check_writable
from tetris.commands import command_line
from tetris.commands.arguments import DEFAULT_BOARD, add_device
from tetris.commands.command_line import (
    Parser,
    fail,
    one_line_errors,
    one_of,
    positive_int,
    up_to,
)
from tetris.evaluation.comparison import table
from tetris.play.devices import check_gpu, choose_device

CPU = ("cpu",)
GPU = ("cuda",)
BOTH = ("cpu", "cuda")
ALL = ("cpu", "cuda", "python")


class Measurement(NamedTuple):
    """A row of the table.

    Attributes:
        name: The name of the measurement and of its result file.
        module: The module in this package that measures.
        devices: The devices that can be measured.
        words: Arguments of the module that this measurement always has.
    """

    name: str
    module: str
    devices: tuple[str, ...] = BOTH
    words: str = ""


SEARCHES = (
    "noisy_ce_bertsekas_10x10",
    "noisy_ce_bcts_10x10",
    "noisy_ce_bertsekas_10x20",
    "noisy_ce_bcts_10x20",
)
SUITES = {
    "bbob": "--dims 2 3 5 10 20 40 --instances 41-45",
    "bbob-noisy": "--dims 5 20 --instances 41-52",
    "bbob-constrained": "--dims 5 10 --instances 41-48",
    "bbob-mixint": "--dims 5 20 --instances 41-55",
}
"""The arguments of the measurements of COCO's suites, by suite."""

ASYNCHRONOUS = (
    "--searches cem cem_population_16 cem_asynchronous_8 cem_asynchronous_16 --dims 5 10 "
    "--instances 71-73 --checkpoints 200 1000"
)
"""The arguments of the comparison of asynchronous with synchronous searches."""

_PLAYERS = ("dt20", "best", "bcts", "bdu", "bertsekas")
TRAININGS = ("training", "first_run", "record", "record_10x10", "linear", "hidden_units")
TOOLS = ("memcheck", "racecheck", "initcheck")

_TABLE = (
    Measurement("sampling", "sampling"),
    Measurement("generation", "generation"),
    Measurement("coco", "coco", CPU),
    *(
        Measurement(suite, "coco", CPU, f"--suite {suite} {words}")
        for suite, words in SUITES.items()
    ),
    Measurement("asynchronous", "coco", CPU, ASYNCHRONOUS),
    Measurement("operators", "operators"),
    Measurement("discrete", "discrete"),
    Measurement("rollout", "rollout", ALL),
    Measurement("env", "env", ALL),
    Measurement("equality", "equality", GPU),
    *(Measurement(name, "training", BOTH, name) for name in TRAININGS),
    Measurement("cluster", "cluster", CPU),
    Measurement("reproduce", "reproduce", BOTH),
    Measurement("published", "reproduce", BOTH, "published"),
    *(Measurement(name, "reproduce", CPU, name) for name in SEARCHES[:2]),
    *(Measurement(name, "reproduce", GPU, name) for name in SEARCHES[2:]),
    Measurement("lookahead", "lookahead", GPU),
    Measurement("sz", "sz"),
    Measurement("peers", "peers", CPU),
    Measurement("plans", "plans", CPU),
    Measurement("practice", "practice", CPU),
    Measurement("control", "control", CPU),
    Measurement("learned_control", "learned_control", CPU),
    *(Measurement(tool, "sanitizers", GPU, tool) for tool in TOOLS),
)
MEASUREMENTS = {measurement.name: measurement for measurement in _TABLE}


def _choice(kind: str, names: Sequence[str], **options: Any) -> dict[str, Any]:
    return {
        "type": one_of(kind, names),
        "metavar": kind.upper(),
        "help": ", ".join(names),
        **options,
    }


def _number(default: int, text: str, high: int = 1 << 62) -> dict[str, Any]:
    return {
        "type": up_to(high),
        "metavar": "N",
        "default": default,
        "help": f"{text} (default: %(default)s)",
    }


def _numbers(text: str) -> range:
    """Return the range of numbers that a text such as ``5`` or ``3-5`` names."""
    first, _, last = text.partition("-")
    return range(positive_int(first), positive_int(last or first) + 1)


_DIMS = [2, 5, 20]
_INSTANCES = "1-3"
_SECONDS = {"type": command_line.positive_seconds, "metavar": "S", "default": 1.0}
_LENGTH = {
    "--repeats": _number(7, "measurements", 10_000),
    "--seconds": {**_SECONDS, "help": "of each (default: %(default)g)"},
}
_GAMES = {"--num-envs": _number(1024, "games side by side", 1 << 20), **_LENGTH}
_CONTROLLERS = {"nargs": "*", "metavar": "CONTROLLER", "help": "by name, files or run folders"}
_JOBS = {"--jobs": _number(1, "processes", 1024)}
_BOARD = {"default": DEFAULT_BOARD, "metavar": "WxH", "help": "(default: %(default)s)"}
_NUMBERS = {"type": positive_int, "nargs": "+", "metavar": "N"}
OPTIONS: dict[str, dict[str, Any]] = {
    "coco": {
        "--suite": _choice("suite", tuple(SUITES), default="bbob"),
        "--searches": {"nargs": "+", "metavar": "NAME", "help": "(default: all)"},
        "--functions": {**_NUMBERS, "help": "(default: all)"},
        "--dims": {
            **_NUMBERS,
            "default": _DIMS,
            "help": f"(default: {' '.join(map(str, _DIMS))})",
        },
        "--instances": {
            **_NUMBERS,
            "type": _numbers,
            "default": [_numbers(_INSTANCES)],
            "help": f"(default: {_INSTANCES})",
        },
        "--budget": _number(2000, "evaluations per dimension"),
        "--checkpoints": {
            "type": int,
            "nargs": "+",
            "metavar": "N",
            "help": "evaluations per dimension in place of --budget and a tenth of it",
        },
        **_JOBS,
    },
    "practice": {
        "--problems": {"nargs": "+", "metavar": "NAME", "help": "(default: all)"},
        **_JOBS,
    },
    "rollout": {
        "controllers": {**_CONTROLLERS, "default": _PLAYERS},
        "--board": _BOARD,
        **_LENGTH,
    },
    "sz": {"controllers": {**_CONTROLLERS, "default": ()}},
    "env": _GAMES,
    "peers": _GAMES,
    "training": {
        "what": _choice("what", TRAININGS),
        "--seed": _number(1, "for training the first of five seeds", 1 << 31),
    },
    "sanitizers": {"tool": _choice("tool", TOOLS)},
    "reproduce": {
        "experiments": _choice("experiment", ("published", *SEARCHES), nargs="*"),
        "--quick": {"action": "store_true", "help": "a look: three searches of a kind"},
    },
}
"""The arguments of each module, as keyword arguments of argparse's `add_argument`."""


def command(name: str) -> Callable[..., int]:
    """Return the command of a measurement: a function of the words of a command line."""
    return partial(_run, name)


def _run(name: str, argv: Sequence[str] | None = None) -> int:
    """Make a measurement, print its figures, and write them to a file with --json or --record.

    Wrong arguments end the process with status 2. They are checked before torch is imported,
    which takes seconds.

    Args:
        name: The name of the measurement, a key of `MEASUREMENTS`.
        argv: The words of the command line. None stands for the arguments of this process.

    Returns:
        The exit status: 0, or 1 if the measurement failed.
    """
    measurement = MEASUREMENTS[name]
    words = sys.argv[1:] if argv is None else argv
    # `measurement.words` are arguments that this measurement always has.
    arguments = _parse(measurement, [*measurement.words.split(), *words])
    with one_line_errors():
        if arguments.json is not None:
            check_writable(arguments.json)
        device = _choose_device(measurement, arguments)
    # These two modules import torch. A rank is the number of a process, if several measure.
    from kernels.support import ranks
    from measure import provenance

    # Read the commit now, since the checkout may change during the measurement.
    sha, is_dirty = provenance.commit()
    if arguments.record:
        arguments.json = _find_record(name, device, sha)
    measure = importlib.import_module(f"measure.{measurement.module}").measure
    with command_line.joined_ranks():
        try:
            result = measure(arguments, device)
        except BuildError:  # It is a RuntimeError, too, but the caller prints it.
            raise
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 1
        _print_result(result, provenance.machine(device))
        if arguments.json is not None and ranks.rank() == 0:  # Only one process writes.
            provenance.write_result(arguments.json, result, device, (sha, is_dirty))
    return 0


def _find_record(name: str, device: str, sha: str | None) -> Path:
    """Return the file for the published result of a measurement, and make its folder.

    Without a commit, to which the result would belong, the process ends.
    """
    from measure import provenance

    if sha is None:
        fail(f"expected git to know the commit that is measured: set {provenance.COMMIT}")
    folder = provenance.RESULTS / provenance.machine_name(device)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.json"


def _print_result(result: Any, machine: Mapping[str, Any]) -> None:
    """Print the figures of a measurement, and the machine on which it was made."""
    hardware = machine.get("gpu", machine["processor"])
    print(hardware, machine["vectors"], f"{machine['threads']} threads", sep=", ")
    print(_figure_table(result.figures, result.data.get("ranges", {})), flush=True)


def _choose_device(measurement: Measurement, arguments: argparse.Namespace) -> str:
    """Return the device to measure; raise ValueError if this machine does not have it."""
    if measurement.devices == GPU:
        check_gpu("what is measured", "a machine with one")
    # Measurements for a single device have no option --device.
    if len(measurement.devices) == 1:
        return measurement.devices[0]
    return choose_device(arguments.device)


def _parse(measurement: Measurement, words: Sequence[str]) -> argparse.Namespace:
    """Parse the words of a command line, and return the arguments of a measurement.

    Every measurement has the options --json and --record, which write a result file. A
    measurement that has several devices also has the option --device. All other options are
    those of its module.
    """
    # The help begins with the docstring of the module. The docstring is read from the source,
    # since importing the module would import torch, which takes seconds.
    module = measurement.module
    source = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    description = ast.get_docstring(ast.parse(source)) or ""
    parser = Parser(description=description, usage="%(prog)s [option ...] [argument ...]")
    # `OPTIONS` has the keyword arguments of each option, by module.
    for name, options in OPTIONS.get(module, {}).items():
        parser.add_argument(name, **options)
    if len(measurement.devices) > 1:
        add_device(parser, ("auto", *measurement.devices), what="what is measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result")
    parser.add_argument(
        "--record", action="store_true", help="to benchmarks/results/<machine>/<name>.json"
    )
    return parser.parse_args(words)


def _figure_table(figures: Mapping[str, float], ranges: Mapping[str, Sequence[float]]) -> str:
    """Return a table of figures, with their ranges.

    The columns of the ranges are left out if no figure has one.
    """
    rows = []
    for name, value in figures.items():
        row = [name]
        for number in (value, *ranges.get(name, ())):
            row.append(f"{number:,.0f}" if number >= 1000 else f"{number:.4g}")
        rows.append(row)
    num_columns = max(map(len, rows))
    header = ["figure", "value", "least", "most"][:num_columns]
    for row in rows:
        # A row without a range gets empty cells.
        row += [""] * (num_columns - len(row))
    return table(header, rows)
