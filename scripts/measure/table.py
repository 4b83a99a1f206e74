"""The measurements there are, and how one is run: by its name, in this process or in one of its own.

A measurement is the function `measure` of a module of this package: it takes its arguments and a device and
returns figures and data. A row of the table gives it a name, under which its result is filed.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
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

CPU, GPU, BOTH, ALL = ("cpu",), ("cuda",), ("cpu", "cuda"), ("cpu", "cuda", "python")


class Measurement(NamedTuple):
    """A row of the table."""

    name: str  # of the measurement and its result file
    module: str  # of this package, that measures
    devices: tuple[str, ...] = BOTH  # on which it can be measured
    words: str = ""  # arguments that the name stands for


SEARCHES = tuple(f"noisy_ce_{x}_{board}" for board in ("10x10", "10x20") for x in ("bertsekas", "bcts"))
SUITES = {
    "bbob": "--dims 2 3 5 10 20 40 --instances 41-45",
    "bbob-noisy": "--dims 5 20 --instances 41-52",
    "bbob-constrained": "--dims 5 10 --instances 41-48",
    "bbob-mixint": "--dims 5 20 --instances 41-55",
}
"""Those of COCO, and what is measured of them."""
_PLAYERS = ("dt20", "best", "bcts", "bdu", "bertsekas")
TRAININGS = ("training", "first_run")
TOOLS = ("memcheck", "racecheck", "initcheck")

_TABLE = (
    Measurement("sampling", "sampling"),
    Measurement("generation", "generation"),
    Measurement("coco", "coco", CPU),
    *(Measurement(suite, "coco", CPU, f"--suite {suite} {words}") for suite, words in SUITES.items()),
    Measurement("operators", "operators"),
    Measurement("discrete", "discrete"),
    Measurement("rollout", "rollout", ALL),
    Measurement("env", "env", ALL),
    Measurement("equality", "equality", GPU),
    *(Measurement(each, "training", BOTH, each) for each in TRAININGS),
    Measurement("reproduce", "reproduce", BOTH),
    Measurement("published", "reproduce", BOTH, "published"),
    *(Measurement(x, "reproduce", GPU if x.endswith("x20") else CPU, x) for x in SEARCHES),
    Measurement("peers", "peers", CPU),
    *(Measurement(tool, "sanitizers", GPU, tool) for tool in TOOLS),
)
MEASUREMENTS = {each.name: each for each in _TABLE}


def _choice(kind: str, names: Sequence[str], **others: Any) -> dict[str, Any]:
    return {"type": one_of(kind, names), "metavar": kind.upper(), "help": ", ".join(names), **others}


def _number(default: int, text: str, most: int = 1 << 62) -> dict[str, Any]:
    return {"type": up_to(most), "metavar": "N", "default": default, "help": f"{text} (default: %(default)s)"}


def _numbers(text: str) -> range:
    """Return the numbers that ``5`` or ``3-5`` stands for."""
    first, _, last = text.partition("-")
    return range(positive_int(first), positive_int(last or first) + 1)


_DIMS = [2, 5, 20]
_INSTANCES = "1-3"
_SECONDS = {"type": command_line.positive_seconds, "metavar": "S", "default": 1.0}
_LENGTH: Mapping[str, Any] = {
    "--repeats": _number(7, "measurements", 10_000),
    "--seconds": {**_SECONDS, "help": "of each (default: %(default)g)"},
}
_GAMES = {"--num-envs": _number(1024, "games side by side", 1 << 20), **_LENGTH}
_CONTROLLERS = {"nargs": "*", "metavar": "CONTROLLER", "help": "by name, files or run folders"}
_BOARD = {"default": DEFAULT_BOARD, "metavar": "WxH", "help": "(default: %(default)s)"}
_NUMBERS = {"type": positive_int, "nargs": "+", "metavar": "N"}
OPTIONS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "coco": {
        "--suite": _choice("suite", tuple(SUITES), default="bbob"),
        "--searches": {"nargs": "+", "metavar": "NAME", "help": "(default: all)"},
        "--functions": {**_NUMBERS, "help": "(default: all)"},
        "--dims": {**_NUMBERS, "default": _DIMS, "help": f"(default: {' '.join(map(str, _DIMS))})"},
        "--instances": {
            **_NUMBERS,
            "type": _numbers,
            "default": [_numbers(_INSTANCES)],
            "help": f"(default: {_INSTANCES})",
        },
        "--budget": _number(2000, "evaluations per dimension"),
        "--jobs": _number(1, "processes", 1024),
    },
    "rollout": {"controllers": {**_CONTROLLERS, "default": _PLAYERS}, "--board": _BOARD, **_LENGTH},
    "env": _GAMES,
    "peers": _GAMES,
    "training": {"what": _choice("what", TRAININGS)},
    "sanitizers": {"tool": _choice("tool", TOOLS)},
    "reproduce": {
        "experiments": _choice("experiment", ("published", *SEARCHES), nargs="*"),
        "--quick": {"action": "store_true", "help": "a look: three searches of a kind"},
    },
}
"""The arguments of each module, as `argparse` takes them."""


def command(name: str) -> Callable[..., int]:
    """Return the main function of a measurement: it prints the figures, and with ``--json`` writes a result.

    The arguments are checked before torch is imported. The status is 0, 1 where the measurement failed, or 2
    after bad input.
    """

    def main(argv: Sequence[str] | None = None) -> int:
        row = MEASUREMENTS[name]
        arguments = _read(row, [*row.words.split(), *(sys.argv[1:] if argv is None else argv)])
        with one_line_errors():
            if arguments.json is not None:
                check_writable(arguments.json)
            if row.devices == GPU:
                check_gpu("what is measured", "a machine with one")
            device = row.devices[0] if len(row.devices) == 1 else choose_device(arguments.device)
        from kernels.support import ranks
        from measure import provenance

        at = provenance.commit()  # the checkout may move on while it is measured
        if arguments.record:
            if at[0] is None:
                fail(f"expected git to know the commit that is measured: set {provenance.COMMIT}")
            arguments.json = provenance.RESULTS / provenance.machine_name(device) / f"{name}.json"
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
        measure: Callable[..., Any] = importlib.import_module(f"measure.{row.module}").measure
        with command_line.joined_ranks():
            try:
                found: provenance.Measured = measure(arguments, device)
            except BuildError:  # a RuntimeError that whoever runs this prints
                raise
            except RuntimeError as error:
                print(error, file=sys.stderr)
                return 1
            here = provenance.machine(device)
            print(here.get("gpu", here["processor"]), here["vectors"], f"{here['threads']} threads", sep=", ")
            print(_table_of(found.figures, found.data.get("ranges", {})), flush=True)
            if arguments.json is not None and ranks.rank() == 0:
                provenance.write_result(arguments.json, found, device, at)
        return 0

    return main


def _read(row: Measurement, words: Sequence[str]) -> argparse.Namespace:
    source = Path(__file__).with_name(f"{row.module}.py").read_text(encoding="utf-8")
    doc = ast.get_docstring(ast.parse(source)) or ""
    options = OPTIONS.get(row.module, {})
    parser = Parser(description=doc, usage="%(prog)s [option ...] [argument ...]")
    for name, settings in options.items():
        parser.add_argument(name, **settings)
    if len(row.devices) > 1:
        add_device(parser, ("auto", *row.devices), what="what is measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result")
    parser.add_argument("--record", action="store_true", help="to benchmarks/results/<machine>/<name>.json")
    return parser.parse_args(words)


def _table_of(figures: Mapping[str, float], ranges: Mapping[str, Sequence[float]]) -> str:
    """Return the figures as a table, with least and most where they are medians of several measurements."""
    rows = [
        [name, *(f"{x:,.0f}" if x >= 1000 else f"{x:.4g}" for x in (value, *ranges.get(name, ())))]
        for name, value in figures.items()
    ]
    most = max(map(len, rows))
    return table(["figure", "value", "least", "most"][:most], [[*row, "", ""][:most] for row in rows])
