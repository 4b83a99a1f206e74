"""Measure how long training takes to reach given scores, from nothing: wall time, over several seeds.

python scripts/measure time_to_target --device cpu --seeds 3 --json out.json

Each run is a process of its own, and its clock starts with it; engines are compiled before. About once a
second a run writes the controller that it has learned so far. The first of these that reaches a goal is found
afterwards by bisection, each played on pieces that training never met, or on a processor estimated.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import tempfile
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from kernels.support.files import write_text
from measure.cli import KEEP, Unfinished, measurement
from measure.processes import flags, learned, start
from measure.provenance import Measured
from measure.training import SEEDS
from tetris import LinearController, Rollout, Rules, Score
from tetris.devices import DEVICES
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.estimates import Estimate, estimate
from tetris.evaluation.scores import MOST_STREAMS, STREAMS
from tetris.score import chi2_quantile
from tetris.training.recipe import make_recipe
from tetris.training.run_folder import RunFolder
from tetris.training.training import prepare_engine

GAMES = 400  # after which a score counts as it is: its interval is then ten percent to each side
PLAYED_LINES = 10_000_000  # goals up to this are played on a processor, those above it are estimated
MOST_ESTIMATES = 64  # after which their mean counts as it is: some five percent to each side
_FIRST_STEP = 2000  # decisions on a stream: so long that its start on an empty board hardly counts
_LOOKS = 16  # at a score, about, while GAMES end
_DOUBT = 0.0005  # on each side, at each look
_DECISIONS_A_LINE = 2.5  # four cells a piece, ten a line
_POLL_SECONDS = 0.05


class Goal(NamedTuple):
    """A number of lines per game on a board, WIDTHxHEIGHT."""

    board: str
    lines: int

    @property
    def name(self) -> str:
        """The goal as a word of a figure's name: ``10x20.35M``."""
        return f"{self.board}.{self.lines // 10**6}M" if self.lines >= 10**6 else f"{self.board}.{self.lines}"


GOALS = (Goal("10x10", 3_900), Goal("10x20", 1_000_000), Goal("10x20", 35_000_000), Goal("10x20", 51_000_000))
"""On the small board the record of 2009; on the large one a million, that record, the best published one."""

Moment = Mapping[str, Any]  # seconds since the start of a run, generation, decisions until then, weights


def look(weights: Sequence[float], features: str, goal: Goal, device: str) -> Score | Estimate:
    """Score a controller until it is clear on which side of a goal it is, or the games have ended."""
    rules = Rules(*Rules.parse_board(goal.board))
    if device == "cpu" and goal.lines > PLAYED_LINES:
        controller = LinearController(features, tuple(weights), rules)

        def enough(found: Estimate) -> bool:
            low, high = found.interval(1 - 2 * _DOUBT)
            clear = low > goal.lines or (high is not None and high < goal.lines)
            return clear or len(found.rates) >= MOST_ESTIMATES

        return estimate(goal.name, controller, rules, device, enough)
    streams = {"cuda": MOST_STREAMS, "cpu": STREAMS}.get(device, 1)
    rollout = Rollout(torch.tensor([weights]), rules, streams, DEFAULT_SEED, device, features=features)
    longest = max(_FIRST_STEP, round(goal.lines * _DECISIONS_A_LINE * GAMES / _LOOKS / streams))
    step = _FIRST_STEP
    while True:
        totals = rollout.advance(step)
        step = min(2 * step, longest)
        score = Score(int(totals.lines[0]), int(totals.games[0]), int(totals.decisions[0]))
        if is_clear(score, goal.lines) or score.games >= GAMES:
            return score


def is_clear(score: Score, lines: int) -> bool:
    """Tell whether the 99.9 % interval leaves a goal out; one of 95 % would too often do so by luck."""
    low = 2 * score.lines / chi2_quantile(1 - _DOUBT, 2 * score.games + 2)
    high = 2 * score.lines / chi2_quantile(_DOUBT, 2 * score.games) if score.games else math.inf
    return not low <= lines <= high


def reached_at(moments: Sequence[Moment], features: str, goal: Goal, device: str) -> dict[str, Any] | None:
    """Return the first moment at which a run has reached a goal, with its score; None where it has not."""
    scores: dict[int, Score | Estimate] = {}

    def reached(index: int) -> bool:
        scores[index] = score = look(moments[index]["weights"], features, goal, device)
        return score.lines_per_game is None or score.lines_per_game >= goal.lines

    if not moments or not reached(len(moments) - 1):
        return None
    index = bisect_left(range(len(moments) - 1), True, key=reached)
    score = scores[index]
    return {
        **{key: moments[index][key] for key in ("seconds", "generation", "decisions")},
        "lines_per_game": score.lines_per_game,
        "ci95": list(score.ci95),
        **({"estimates": len(score.rates)} if isinstance(score, Estimate) else {"games": score.games}),
    }


def train(settings: Mapping[str, Any], out: Path) -> tuple[list[Moment], dict[str, Any]]:
    """Train in a process of its own; what it had learned when, and how that came about in the end."""
    words = ("scripts/train_tetris.py", *flags(settings), "--score-decisions", 0, "--out", out)
    file, moments, generation, ended = RunFolder(out).controller, list[Moment](), 0, False
    began = time.time()
    with start(*words, stdout=subprocess.DEVNULL) as process:
        while not ended:
            ended = process.poll() is not None
            seconds = file.stat().st_mtime - began if file.is_file() else 0.0
            controller = learned(out) if seconds else {"provenance": {"generation": 0}}
            if (known := controller["provenance"])["generation"] > generation:
                generation = known["generation"]
                told = {"generation": generation, "decisions": known["decisions"]}
                moments.append({"seconds": seconds, **told, "weights": controller["weights"]})
            time.sleep(_POLL_SECONDS)
    if process.returncode or not moments:
        raise RuntimeError(f"{' '.join(map(str, words))} ended with {process.returncode}")
    return moments, known


def measure_seed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run, and when it reached each goal; what it knew every second is left out."""
    with tempfile.TemporaryDirectory() as folder:
        moments, known = train(settings, Path(folder) / "run")
    features = known["config"]["features"]
    return {
        "seed": settings["seed"],
        "total_seconds": moments[-1]["seconds"],
        "reached": {goal.name: reached_at(moments, features, goal, settings["device"]) for goal in GOALS},
        "config": known["config"],
        "training_seconds": known["seconds"],
        "decisions": known["decisions"],
    }


def measure_seeds(
    settings: Mapping[str, Any], seeds: int, kept: Path, stop_after_s: float
) -> list[dict[str, Any]]:
    """Return a run for each seed from 1 on; those in the folder ``kept`` are not measured again."""
    began, runs = time.monotonic(), list[dict[str, Any]]()
    kept.mkdir(parents=True, exist_ok=True)
    for seed in range(1, seeds + 1):
        file = kept / f"seed-{seed}.json"
        if not file.is_file():
            if time.monotonic() - began > stop_after_s:
                raise Unfinished(f"{len(runs)} of {seeds} seeds are measured")
            write_text(file, json.dumps(measure_seed({**settings, "seed": seed})))
        runs.append(json.loads(file.read_text()))
    return runs


def figures(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return, for each goal that more than half of the runs reached, the median of their seconds.

    A run that did not reach it counts as later than any that did.
    """
    found = {}
    for goal in GOALS:
        reached = [run["reached"][goal.name] for run in runs]
        median = statistics.median_high([each["seconds"] if each else math.inf for each in reached])
        if median < math.inf:
            found[f"time_to_quality.{goal.name}.seconds"] = median
    return found


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return when the runs reached the goals."""
    settings = {"preset": "quick", "device": device}
    prepare_engine(make_recipe(device, settings))
    with tempfile.TemporaryDirectory() as name:
        kept, stop_after_s = arguments.keep or Path(name), arguments.stop_after or math.inf
        runs = measure_seeds(settings, arguments.seeds, kept, stop_after_s)
    goals = [{"name": goal.name, **goal._asdict()} for goal in GOALS]
    return figures(runs), {"goals": goals, "runs": runs}, {}


main = measurement(measure, __doc__, {**SEEDS, **KEEP}, devices=DEVICES)
