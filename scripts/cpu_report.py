"""Measure on this machine's CPU what README and docs say, and write it to one result file.

The speed of the engines, the published controllers on both boards of the literature, the preset that trains
without a flag, from nothing, over several seeds, how long it takes to reach given scores, the Gymnasium
environments, and the kernels. About half an hour on two cores.

python scripts/cpu_report.py && python scripts/render_figures.py
"""

from __future__ import annotations

import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _machine import machine, processor_of, source_digest
from _results import DESCRIBED_PARTS, read_report
from time_to_quality import without_moments

from kernels.files import check_writable, write_text
from tetris.commands.command_line import (
    Parser,
    add_parts,
    fail,
    one_line_errors,
    positive_int,
    positive_seconds,
    run,
)
from tetris.controller import PUBLISHED
from tetris.evaluation.scores import find_estimate, find_measurement
from tetris.versions import versions

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "cpu.json"
PARTS = ("speed", "training", "published", *DESCRIBED_PARTS)
TIMED_SECONDS = 60.0
"""After so long a run that is timed to given scores is cut off."""


def script(name: str, *arguments: object) -> str:
    """Run a script of this folder as a person without a GPU would; what it prints on stdout.

    Raises:
        RuntimeError: If it fails.
    """
    command = [sys.executable, str(ROOT / "scripts" / f"{name}.py"), *map(str, arguments)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    finished = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment, check=False
    )
    if finished.returncode:
        raise RuntimeError(
            f"expected {' '.join(command[1:])} to succeed, got exit code {finished.returncode}"
        )
    return finished.stdout


def speed(folder: Path) -> dict[str, Any]:
    """Return what scripts/benchmark_tetris.py measures."""
    target = folder / "speed.json"
    script("benchmark_tetris", "--json", target)
    result: dict[str, Any] = json.loads(target.read_text())
    return result


def published_scores(seconds: float) -> dict[str, list[dict[str, Any]]]:
    """Return the published controllers' measurements, for so long each, by board."""
    return {
        board: json.loads(
            script("evaluate_tetris", *PUBLISHED, "--board", board, "--seconds", seconds, "--json")
        )
        for board in ("10x10", "10x20")
    }


def kernel_part(folder: Path, name: str) -> dict[str, Any]:
    """Return what scripts/benchmark_<name>.py measures on the CPU."""
    target = folder / f"{name}.json"
    script(f"benchmark_{name}", "--device", "cpu", "--output", target)
    result: dict[str, Any] = json.loads(target.read_text())
    return result


def environments(folder: Path) -> dict[str, Any]:
    """Return what scripts/benchmark_env.py measures."""
    target = folder / "env.json"
    print(script("benchmark_env", "--device", "cpu", "--json", target))
    result: dict[str, Any] = json.loads(target.read_text())
    return result


def time_to_quality(folder: Path, seeds: int) -> dict[str, Any]:
    """Return what scripts/time_to_quality.py measures."""
    target = folder / "time_to_quality.json"
    limit = ("--time-limit", TIMED_SECONDS)
    print(script("time_to_quality", "--device", "cpu", "--seeds", seeds, *limit, "--json", target))
    return without_moments(json.loads(target.read_text()))


def training(folder: Path, seeds: int) -> list[dict[str, Any]]:
    """Return, for each seed, what training without any other flag comes to, and how long it takes in all."""
    runs = []
    for seed in range(1, seeds + 1):
        out = folder / f"seed-{seed}"
        began = time.perf_counter()
        script("train_tetris", "--seed", seed, "--out", out)
        total = time.perf_counter() - began
        controller = json.loads((out / "controller.json").read_text())
        metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        for record in metrics:
            del record["mean"], record["std"]
        provenance = controller["provenance"]
        runs.append(
            {
                "seed": seed,
                "training_seconds": provenance["seconds"],
                "total_seconds": total,
                "decisions": provenance["decisions"],
                "weights": controller["weights"],
                "score": provenance["score"],
                "estimates": provenance.get("estimates", []),
                "config": provenance["config"],
                "metrics": metrics,
            }
        )
    return runs


def figures(result: dict[str, Any]) -> dict[str, float]:
    """Return the figures by name."""
    runs = result["training"]
    scores = [find_measurement(run["score"], "learned", "10x10")["lines_per_game"] for run in runs]
    found = [find_estimate(run, "learned", "10x20") for run in runs]
    estimates = [each["lines_per_game"] for each in found if each is not None]
    estimated = {}
    if len(estimates) == len(runs):
        estimated = {
            "train.quick.10x20.estimated_lines_per_game_median": statistics.median(estimates),
            "train.quick.10x20.estimated_lines_per_game_worst": min(estimates),
        }
    return {
        **result["speed"]["figures"],
        **estimated,
        "train.quick.10x10.lines_per_game_median": statistics.median(scores),
        "train.quick.10x10.lines_per_game_worst": min(scores),
        "train.quick.training_seconds_median": statistics.median(run["training_seconds"] for run in runs),
        "train.quick.training_seconds_slowest": max(run["training_seconds"] for run in runs),
        "train.quick.total_seconds_slowest": max(run["total_seconds"] for run in runs),
        **{
            name: value
            for part in DESCRIBED_PARTS
            for name, value in result.get(part, {}).get("figures", {}).items()
        },
    }


def main() -> int:
    """Measure and write; 1 where a script that measures failed."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...]")
    add_parts(parser, PARTS)
    parser.add_argument(
        "--seeds", type=positive_int, default=5, metavar="N", help="training runs, seeds 1 to N (default: 5)"
    )
    parser.add_argument(
        "--seconds",
        type=positive_seconds,
        default=40.0,
        metavar="S",
        help="for each published score (default: %(default)g)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=RESULT,
        metavar="FILE",
        help=f"the result file (default: {RESULT.relative_to(ROOT)})",
    )
    arguments = parser.parse_args()

    sources = source_digest("cpu")
    result: dict[str, Any] = {}
    with one_line_errors():
        check_writable(arguments.out)
        if arguments.part:
            result = read_report(arguments.out, of_parts=False)
    if arguments.part:
        engine = set(PARTS) - set(DESCRIBED_PARTS)
        again = engine & set(arguments.part)
        if again and again != engine:
            if result["sources"] != sources:
                fail(f"expected a report of the sources {sources[:12]}, got one of {result['sources'][:12]}")
            here, there = processor_of(machine()), processor_of(result["machine"])
            if here != there:
                fail(f"expected a report of the processor {here}, got one of {there}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measures: dict[str, Callable[[], Any]] = {
            "speed": lambda: speed(folder),
            "training": lambda: training(folder, arguments.seeds),
            "published": lambda: published_scores(arguments.seconds),
            "time_to_quality": lambda: time_to_quality(folder, arguments.seeds),
            "env": lambda: environments(folder),
            "sampling": lambda: kernel_part(folder, "sampling"),
            "operators": lambda: kernel_part(folder, "operators"),
        }
        try:
            measured = {part: measures[part]() for part in PARTS if part in (arguments.part or PARTS)}
        except RuntimeError as error:
            print(f"{error}; {arguments.out} is as it was", file=sys.stderr)
            return 1
    if not set(measured) <= set(DESCRIBED_PARTS):
        result |= {
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "machine": machine(),
            "versions": versions(),
            "sources": sources,
        }
    result |= measured
    result["figures"] = figures(result)
    write_text(arguments.out, json.dumps(result, indent=1) + "\n")
    print(f"wrote {arguments.out}")
    return 0


if __name__ == "__main__":
    run(main)
