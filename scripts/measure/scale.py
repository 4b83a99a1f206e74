"""Measure how training by importance splitting gets faster with more ranks, and simulate many of them.

python scripts/measure scale --device cuda --ranks 2 --json scale.json
python scripts/measure scale --device cpu --ranks 2 --json scale.json

Generations on 10x20 with the work of the preset record: by one rank, by all ranks with the same work
("strong"), and by all ranks with as many times the candidates ("weak"). An efficiency is decisions a second
over those of one rank times the ranks. The runs take turns; each is a process group of its own. A rank of a
CPU has its share of the cores, and so has the one rank it is compared with.

The simulation has two parts. How long a share of the candidates takes one rank is measured, from all
candidates to one. A generation of G ranks takes as long as the slowest of them, which are drawn from these
times, and what ranks need to agree and to gather, log2(G) times that of two.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from kernels.support import ranks
from measure.cli import Options, measurement
from measure.processes import python
from measure.provenance import Measured
from tetris.commands.command_line import up_to
from tetris.training import StopRequest
from tetris.training.objective import RunObjective
from tetris.training.presets import Setting
from tetris.training.recipe import Recipe, make_recipe
from tetris.training.run_folder import RunFolder
from tetris.training.training import Training, prepare_engine

ROUNDS = 3
SIMULATED = (2, 8, 64, 256, 1024)
DRAWS = 400
STAGE = {"cuda": "10x20:1000:750:split", "cpu": "10x20:1000:400:split"}
SMALL: Mapping[str, Mapping[str, Setting]] = {
    "cuda": {},
    "cpu": {"population": 63, "elites": 10, "streams": 64},
}
GENERATIONS = {"cuda": 8, "cpu": 4}
GATHERS = 200


class Work(NamedTuple):
    """What a process group plays."""

    device: str
    populations: tuple[int, ...]
    threads: int  # of a rank on a CPU


def recipe_of(device: str, population: int) -> Recipe:
    """Return the recipe of the preset record with one stage, of splitting on 10x20."""
    settings: dict[str, Setting] = {
        "preset": "record",
        "curriculum": STAGE[device],
        "generations": 0,
        **SMALL[device],
    }
    return make_recipe(device, settings, {"population": population, "seed": 1})


def play(work: Work) -> dict[str, Any]:
    """Return seconds, decisions and a digest of the fitness by population, and the seconds of a gathering."""
    if work.device == "cpu":
        torch.set_num_threads(work.threads)
    found: dict[str, Any] = {"populations": {}}
    for population in work.populations:
        recipe = recipe_of(work.device, population)
        prepare_engine(recipe)
        search = Training(recipe, RunFolder(Path("nowhere")), StopRequest()).optimizer
        objective = RunObjective(recipe, search, lambda: None)
        candidates, digest, seconds = search.ask(), hashlib.sha256(), []
        for generation in range(1 + GENERATIONS[work.device]):
            ranks.greatest([0])  # begin together
            began = time.perf_counter()
            evaluation = objective(candidates, generation)
            digest.update(evaluation.fitness.cpu().numpy().tobytes())
            seconds.append(time.perf_counter() - began)
        decisions = (population + 1) * recipe.streams * recipe.stages[0].decisions
        found["populations"][str(population)] = {
            "seconds": seconds[1:],
            "decisions": decisions,
            "digest": digest.hexdigest(),
        }
    rows = torch.zeros(512 // ranks.count(), 4, dtype=torch.int64, device=work.device)
    began = time.perf_counter()
    for _ in range(GATHERS):
        ranks.gather(ranks.together(lambda: rows), len(rows) * ranks.count())
        if work.device == "cuda":
            torch.cuda.synchronize()
    found["gather_seconds"] = (time.perf_counter() - began) / GATHERS
    return found


def started(count: int, work: Work) -> dict[str, Any]:
    """Play in processes of their own, and return what rank 0 found."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    said = python(*torchrun, Path(__file__), json.dumps(work))
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def rate(played: Sequence[Mapping[str, Any]]) -> float:
    """Return decisions a second: the median of all generations."""
    seconds = [each for one in played for each in one["seconds"]]
    return float(played[0]["decisions"] / median(seconds))


def simulated(shares: Mapping[int, Sequence[float]], gather_s: float, count: int, population: int) -> float:
    """Return the mean seconds of a generation of many ranks.

    Args:
        shares: Seconds of generations by the candidates played, all measured on one rank.
        gather_s: What two ranks need to agree and to gather, in seconds.
        count: The ranks.
        population: The candidates of all of them.
    """
    draw = random.Random(count)
    size = -(-population // count)
    below, above = max(n for n in shares if n <= size), min(n for n in shares if n >= size)
    part = 0.0 if above == below else (size - below) / (above - below)
    times = []
    for _ in range(DRAWS):
        place = [
            draw.randrange(min(len(shares[below]), len(shares[above]))) for _ in range(min(count, population))
        ]
        times.append(max((1 - part) * shares[below][i] + part * shares[above][i] for i in place))
    return fmean(times) + gather_s * math.log2(count)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return figures and details."""
    count: int = arguments.ranks
    population = recipe_of(device, int(SMALL[device].get("population", 512))).population
    threads = max(1, len(os.sched_getaffinity(0)) // count)
    sizes = sorted(
        {-(-population // g) for g in (1, *SIMULATED)} | {1 << i for i in range(population.bit_length())}
    )
    one: list[dict[str, Any]] = []
    same: list[dict[str, Any]] = []
    more: list[dict[str, Any]] = []
    gathers = []
    for _ in range(ROUNDS):
        alone = started(1, Work(device, (population,), threads))["populations"]
        both = started(count, Work(device, (population, count * population), threads))
        one.append(alone[str(population)])
        same.append(both["populations"][str(population)])
        more.append(both["populations"][str(count * population)])
        gathers.append(both["gather_seconds"])
    if len({each["digest"] for each in (*one, *same)}) != 1:
        raise RuntimeError("expected the same fitness of one rank and of many")
    by_share = started(1, Work(device, tuple(max(2, size - 1) for size in sizes), threads))["populations"]
    shares = {int(size) + 1: each["seconds"] for size, each in by_share.items()}
    shares[1] = shares[min(shares)]
    gather_s = median(gathers)
    figures = {
        f"scale.{count}.weak_efficiency": rate(more) / (count * rate(one)),
        f"scale.{count}.strong_efficiency": rate(same) / (count * rate(one)),
        "scale.1.decisions_per_second": rate(one),
        f"scale.{count}.gather_ms": gather_s * 1e3,
    }
    whole = fmean(shares[max(shares)])
    for g in SIMULATED:
        figures[f"scale.simulated.{g}.strong_efficiency"] = whole / (
            g * simulated(shares, gather_s, g, max(shares))
        )
        figures[f"scale.simulated.{g}.weak_efficiency"] = whole / simulated(
            shares, gather_s, g, g * max(shares)
        )
    details = {"population": population, "threads": threads, "one": one, "same": same, "more": more}
    return figures, {**details, "gather_seconds": gathers, "seconds_by_share": shares}, {}


OPTIONS: Options = {
    "--ranks": {"type": up_to(1024), "default": 2, "metavar": "G", "help": "measured ranks (default: 2)"}
}
main = measurement(measure, __doc__, OPTIONS)

if __name__ == "__main__":
    with ranks.joined():
        answer = play(Work(*json.loads(sys.argv[1])))
        if ranks.rank() == 0:
            print(json.dumps(answer))
