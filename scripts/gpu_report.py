"""Run on a machine with a GPU what README and docs say of it, and write benchmarks/results/<gpu>.json.

The GPU tests, the benchmarks of the kernels and of the Tetris engine, its games beside the CPU's, the
Gymnasium environments, training, how long it takes to reach given scores, the record, and the tests under
compute-sanitizer: over an hour on an H200. A part alone is measured again with --part; the rest of the file
stays. With --stop-after the long ones stop in time, and go on when the same command is run again:

python scripts/gpu_report.py && python scripts/render_figures.py
python scripts/gpu_report.py --part record_training --stop-after 540
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from _command import ROOT, python
from _continued import Continued, Unfinished
from _controllers import GOOD
from _engine_builds import build_engines
from _equality import compare_all, configurations
from _gpu_busy import watch_training
from _machine import commit, gpu
from _record import record_score, record_training
from _results import describe, merged, open_report, write_json
from _sanitizer import TOOLS, count_tests, find_tests, run_files
from time_to_quality import GOALS, measure, summary, without_moments

from kernels.files import check_writable
from tetris.commands.command_line import Parser, add_parts, one_line_errors, positive_seconds, run
from tetris.devices import check_gpu
from tetris.training.recipe import make_recipe

RESULTS = ROOT / "benchmarks" / "results"
KEPT = ROOT / "runs" / "gpu_report"
OPERATORS = ("normal", "sigmoid", "vector_add", "elementwise_mult", "lltm")
SANITIZED = ("tests/kernels", "tests/cem", "tests/tetris")
SECONDS = {
    "tests": 400.0,
    "sampling": 150.0,
    "operators": 120.0,
    "rollout": 200.0,
    "env": 200.0,
    "training": 600.0,
    "sanitizer": 150.0,
}
"""The most that a command of each part may take."""

PLAYED = ("dt20", "bcts", "bdu", "bertsekas")
"""Whose decisions a second are measured."""

TRAINED: Mapping[str, str | int] = {"preset": "quick", "device": "cuda", "seed": 1}
GOAL = 45e6
"""Lines a game on 10x20 that training aims at; the record of 2009 has 35 million."""

TIMED: Mapping[str, str | int] = {"preset": "quick"}
TIMED_SEEDS = 5
"""How training is timed to given scores."""

SCORED = 200_000_000_000
"""Decisions a controller after training: on 10x20 1,600 games of DT-20, eighty of who plays a thousand
million lines."""


def tests(folder: Path) -> dict[str, Any]:
    """Return how the GPU tests went.

    Raises:
        RuntimeError: If one fails.
    """
    build_engines((name, 10) for name in GOOD)
    began = time.monotonic()
    output = python(
        *("-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-q", "-m", "cuda", "tests"),
        timeout_s=SECONDS["tests"],
    )
    passed, failed = count_tests(output)
    return {
        **describe("tests", "cuda", OPERATORS, engine=True, environments=True, splitting=True, beside=True),
        "figures": {"tests.cuda.passed": passed, "tests.cuda.failed": failed},
        "seconds": round(time.monotonic() - began, 1),
        "summary": output.splitlines()[-1].strip("= "),
    }


def environments(folder: Path) -> dict[str, Any]:
    """Return what scripts/benchmark_env.py measures; its table goes to stdout."""
    target = folder / "env.json"
    arguments = ("--device", "cuda", "--json", target)
    print(python("scripts/benchmark_env.py", *arguments, timeout_s=SECONDS["env"]), flush=True)
    result: dict[str, Any] = json.loads(target.read_text())
    return result


def benchmark(name: str, folder: Path) -> dict[str, Any]:
    """Return what scripts/benchmark_<name>.py measures; its tables go to stdout."""
    target = folder / f"{name}.json"
    script = ROOT / "scripts" / f"benchmark_{name}.py"
    print(python(script, "--device", "cuda", "--output", target, timeout_s=SECONDS[name]), flush=True)
    result: dict[str, Any] = json.loads(target.read_text())
    return result


def speed(device: str, folder: Path, *controllers: str) -> dict[str, Any]:
    """Return what scripts/benchmark_tetris.py measures on 10x20; its table goes to stdout."""
    target = folder / f"{device}.json"
    arguments = (*controllers, "--board", "10x20", "--device", device, "--json", target)
    print(python("scripts/benchmark_tetris.py", *arguments, timeout_s=SECONDS["rollout"]), flush=True)
    result: dict[str, Any] = json.loads(target.read_text())
    return result


def rollout(folder: Path) -> dict[str, Any]:
    """Return how fast the CUDA engine plays, and beside it the processor of this machine."""
    build_engines((name, 10) for name in GOOD)
    on_gpu, on_cpu = speed("cuda", folder, *PLAYED), speed("cpu", folder, "dt20")
    return {
        **describe("rollout", "cuda", engine=True, beside=True),
        "figures": on_gpu["figures"] | on_cpu["figures"],
        "ranges": on_gpu["ranges"] | on_cpu["ranges"],
        "controllers": on_gpu["controllers"],
    }


def equality(folder: Path) -> dict[str, Any]:
    """Return how much was played on the CPU and on the GPU with the same result.

    Raises:
        RuntimeError: If a result differs.
    """
    chosen = configurations()
    build_engines((each.features, each.rules.width) for each in chosen)
    began = time.monotonic()
    figures = compare_all(chosen, "cuda")
    seconds = round(time.monotonic() - began, 1)
    print(f"equality: {figures['equality.decisions']:,} decisions in {seconds} s", flush=True)
    return {**describe("equality", "cuda", engine=True, beside=True), "figures": figures, "seconds": seconds}


def training(folder: Path) -> dict[str, Any]:
    """Return what training without a flag comes to on the GPU, how long it takes, and how busy the GPU is.

    The time is that of the process, from its start to the learned controller; only what is compiled once on
    a machine is compiled before. It counts as the time to the goal where the controller's score reaches it.
    """
    recipe = make_recipe("cuda", TRAINED)
    build_engines([(recipe.features, recipe.rules.width), ("dt", 10)])
    python("-m", "kernels", "build", "normal", timeout_s=SECONDS["training"])
    flags = [word for name, value in TRAINED.items() for word in (f"--{name}", value)]
    learned, began = folder / "learned", time.monotonic()
    python(
        *("scripts/train_tetris.py", *flags, "--score-decisions", 0, "--out", learned),
        timeout_s=SECONDS["training"],
    )
    seconds = time.monotonic() - began
    evaluation = python(
        *("scripts/evaluate_tetris.py", learned, "dt20", "--board", "10x20", "--device", "cuda"),
        *("--decisions", SCORED, "--json"),
        timeout_s=SECONDS["training"],
    )
    score, reference = json.loads(evaluation)
    score["controller"] = "learned"
    lines = score["lines_per_game"] or score["ci95"][0]  # where no game ended, the least it can be
    reached = lines >= GOAL
    print(f"training: {lines:,.0f} lines a game after {seconds:.1f} s{'' if reached else ', below the goal'}")
    watched = watch_training(recipe, folder)
    controller = json.loads((learned / "controller.json").read_text())
    return {
        **describe("training", "cuda", engine=True, splitting=True),
        "figures": {
            "train.total_seconds": seconds,
            **({"train.seconds_to_45M_lines": seconds} if reached else {}),
            "train.10x20.lines_per_game": lines,
            "train.gpu_busy_fraction": watched.fraction,
        },
        "goal": GOAL,
        "reached": reached,
        "score": [score, reference],
        "gpu": watched.to_dict(),
        "weights": controller["weights"],
        "training_seconds": controller["provenance"]["seconds"],
        "decisions": controller["provenance"]["decisions"],
        "config": controller["provenance"]["config"],
    }


def time_to_quality(session: Continued) -> dict[str, Any]:
    """Return how long training takes from nothing to given scores.

    Raises:
        Unfinished: If there was no time for all seeds.
    """
    recipe = make_recipe("cuda", TIMED)
    build_engines([(recipe.features, recipe.rules.width)])
    python("-m", "kernels", "build", "normal", timeout_s=SECONDS["training"])
    result = measure("cuda", TIMED_SEEDS, TIMED, GOALS, None, session.kept, session.stop_after_s)
    print(summary(result), flush=True)
    return without_moments(result)


def sanitizer(tool: str, folder: Path) -> dict[str, Any]:
    """Return what a tool of compute-sanitizer finds when the GPU tests run under it.

    Raises:
        RuntimeError: If it finds something in a kernel of this project, or the tests do not pass under it.
    """
    build_engines((name, 10) for name in GOOD)
    found = run_files(tool, folder, find_tests(SANITIZED), SECONDS["sanitizer"])
    print(f"{tool}: {found.errors} errors, {found.passed} tests passed in {found.seconds} s", flush=True)
    if found.errors or found.failed or not found.passed:
        raise RuntimeError(f"expected {tool} to find nothing, got {json.dumps(found.to_dict(), indent=1)}")
    return {
        **describe(tool, "cuda", OPERATORS, engine=True, environments=True, splitting=True),
        "figures": {f"sanitizer.{tool}.errors": found.errors, f"sanitizer.{tool}.tests": found.passed},
        "findings": found.to_dict(),
    }


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "tests": tests,
    "sampling": lambda folder: benchmark("sampling", folder),
    "operators": lambda folder: benchmark("operators", folder),
    "rollout": rollout,
    "equality": equality,
    "env": environments,
    "training": training,
    **{tool: partial(sanitizer, tool) for tool in TOOLS},
}


LONG_PARTS: dict[str, Callable[[Continued], dict[str, Any]]] = {
    "time_to_quality": time_to_quality,
    "record_training": record_training,
    "record_score": record_score,
}
"""Those that go on from what they kept, or from other parts of the report."""

NEEDED = {"record_score": "record_training"}
"""What has to be measured before a part."""


def result_path() -> Path:
    """Return the file of this machine's GPU: ``NVIDIA H200`` writes ``h200.json``."""
    name = str(gpu()["gpu"]).lower().removeprefix("nvidia ").removeprefix("geforce ")
    return RESULTS / (re.sub(r"[^a-z0-9]+", "-", name).strip("-") + ".json")


def measure_part(name: str, report: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return a part.

    Args:
        name: Which.
        report: The report so far.
        arguments: The command line.
    """
    if name in LONG_PARTS:
        kept = arguments.keep / name
        kept.mkdir(parents=True, exist_ok=True)
        return LONG_PARTS[name](Continued(kept, report, arguments.stop_after, arguments.commit))
    with tempfile.TemporaryDirectory() as folder:
        return PARTS[name](Path(folder))


def main() -> int:
    """Run the parts and write the file; 1 where a part failed or is not done."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...]")
    names = (*PARTS, *LONG_PARTS)
    add_parts(parser, names)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the result file (default: benchmarks/results/<gpu>.json)",
    )
    parser.add_argument(
        "--stop-after",
        type=positive_seconds,
        metavar="S",
        help="stop time_to_quality and record_training after some S seconds each; run again, they go on",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        default=KEPT,
        metavar="FOLDER",
        help="where what was stopped is kept (default: runs/gpu_report)",
    )
    parser.add_argument(
        "--commit", default=commit(), help="of the sources, where git does not know it (default: %(default)s)"
    )
    arguments = parser.parse_args()
    with one_line_errors():
        check_gpu("a report of a GPU", "scripts/cpu_report.py")
        out = arguments.out or result_path()
        check_writable(out)
        report = open_report(out, "cuda")
    undone: set[str] = set()
    asked = [name for name in names if name in (arguments.part or names)]
    for name in asked:
        if NEEDED.get(name) in undone:
            print(f"{name} waits for {NEEDED[name]}", file=sys.stderr, flush=True)
            undone.add(name)
            continue
        try:
            report = merged(report, {name: measure_part(name, report, arguments)})
        except Unfinished as state:
            print(f"{name} is not done: {state}; run it again to go on", file=sys.stderr, flush=True)
            undone.add(name)
            continue
        except (RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
            print(f"{name} failed: {error}", file=sys.stderr, flush=True)
            undone.add(name)
            continue
        write_json(out, report)
        print(f"wrote {name} to {out}", flush=True)
    if undone:
        return 1
    for name in set(asked) & set(LONG_PARTS):  # until then the same command finds them done
        shutil.rmtree(arguments.keep / name)
    return 0


if __name__ == "__main__":
    run(main)
