"""Measure how long training takes to reach given scores, from nothing: wall time, over several seeds.

python scripts/measure/time_to_target.py --device cpu --seeds 3 --json out.json

Each run is a process of its own, and its clock starts with it; only what is compiled once on a machine is
compiled before. With --time-limit a run is cut off. After a generation, about once a second, it notes its
controller. Afterwards, with the clock stopped, the first of these that reaches a goal is found by bisection.
A controller is played until the interval of its score leaves the goal out or enough games have ended, on
pieces that training never met. On a processor, where hundreds of games of many millions of lines take hours,
its score is estimated instead, by importance splitting.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.files import write_text
from measure.cli import Unfinished, make_parser, measurement, read
from measure.engines import build_for_training
from measure.processes import begin, python
from measure.provenance import write_result
from tetris import LinearController, Rollout, Rules, Score
from tetris.commands.command_line import one_line_errors, one_of, positive_int, positive_seconds, run
from tetris.devices import DEVICES
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.estimates import Estimate, estimate
from tetris.evaluation.scores import MOST_STREAMS, STREAMS
from tetris.evaluation.text_table import table
from tetris.score import chi2_quantile
from tetris.splitting import LEAST_DECISIONS
from tetris.training.recipe import Recipe, make_recipe, read_settings

GAMES = 400
"""The games after which a score counts as it is: its interval is then ten percent to each side."""

PLAYED_LINES = 10_000_000
"""Goals up to this are played on a processor, those above it are estimated."""

MOST_ESTIMATES = 64
"""The estimates after which their mean counts as it is: some five percent to each side."""

_FIRST_STEP = 2000  # decisions on a stream: so long that its start on an empty board hardly counts
_LOOKS = 16  # at a score, about, while so many games end
_DOUBT = 0.0005  # on each side, at each look
_DECISIONS_A_LINE = 2.5  # four cells a piece, ten a line


@dataclass(frozen=True)
class Goal:
    """So many lines per game on a board, WIDTHxHEIGHT."""

    board: str
    lines: int

    @property
    def name(self) -> str:
        """The goal as a word of a figure's name: ``10x20.35M``."""
        return f"{self.board}.{self.lines // 10**6}M" if self.lines >= 10**6 else f"{self.board}.{self.lines}"


GOALS = (Goal("10x10", 3_900), Goal("10x20", 1_000_000), Goal("10x20", 35_000_000), Goal("10x20", 51_000_000))
"""What the record of 2009 plays on the small board; and on the large one a million, the record of 2009, and
the best published one-piece controller."""

Moment = Mapping[str, Any]
"""What a run knew: seconds since its start, generation, decisions until then, weights of length 1."""


def first_reached(count: int, reached: Callable[[int], bool]) -> int | None:
    """Return the first of so many moments that reaches a goal, by bisection; None where the last does not."""
    if count == 0 or not reached(count - 1):
        return None
    low, high = -1, count - 1  # low does not, high does
    while high - low > 1:
        middle = (low + high) // 2
        if reached(middle):
            high = middle
        else:
            low = middle
    return high


def look(
    weights: Sequence[float], features: str, goal: Goal, device: str, games: int = GAMES
) -> Score | Estimate:
    """Score a controller until it is clear on which side of a goal it is, or certain enough.

    It plays until so many games have ended; on a CPU a goal of many lines is estimated instead.
    """
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
    longest = max(_FIRST_STEP, round(goal.lines * _DECISIONS_A_LINE * games / _LOOKS / streams))
    step = _FIRST_STEP
    while True:
        totals = rollout.advance(step)
        step = min(2 * step, longest)
        score = Score(int(totals.lines[0]), int(totals.games[0]), int(totals.decisions[0]))
        if is_clear(score, goal.lines) or score.games >= games:
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

    index = first_reached(len(moments), reached)
    if index is None:
        return None
    score = scores[index]
    return {
        **{key: moments[index][key] for key in ("seconds", "generation", "decisions")},
        "lines_per_game": score.lines_per_game,
        "ci95": list(score.ci95),
        **({"estimates": len(score.rates)} if isinstance(score, Estimate) else {"games": score.games}),
    }


def train(settings: Mapping[str, Any], longest_s: float | None) -> dict[str, Any]:
    """Train in a process of its own, so many seconds at most; what `timed_training` writes.

    Raises:
        RuntimeError: If it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        config, out = Path(folder) / "settings.json", Path(folder) / "run.json"
        config.write_text(json.dumps(settings))
        limit = () if longest_s is None else (longest_s,)
        python(Path(__file__).with_name("timed_training.py"), config, time.time(), out, *limit)
        result: dict[str, Any] = json.loads(out.read_text())
    return result


def measure_seed(
    settings: Mapping[str, Any], goals: Sequence[Goal], longest_s: float | None
) -> dict[str, Any]:
    """Return a run, and when it reached each goal; what it knew every second is left out."""
    began = time.monotonic()
    found = train(settings, longest_s)
    features, moments = found["config"]["features"], found.pop("moments")
    when = {goal.name: reached_at(moments, features, goal, settings["device"]) for goal in goals}
    return {
        "seed": settings["seed"],
        "total_seconds": moments[-1]["seconds"] if moments else longest_s,
        "measured_seconds": time.monotonic() - began,
        "reached": when,
        **found,
    }


def measure(
    settings: Mapping[str, Any],
    seeds: int,
    goals: Sequence[Goal],
    longest_s: float | None,
    kept: Path,
    stop_after_s: float | None,
) -> list[dict[str, Any]]:
    """Return a run for each seed from 1 on; those in the folder ``kept`` are not measured again.

    Raises:
        Unfinished: If the next one is unlikely to be done after ``stop_after_s`` seconds.
    """
    began = time.monotonic()
    runs: list[dict[str, Any]] = []
    measured = False
    for seed in range(1, seeds + 1):
        file = kept / f"seed-{seed}.json"
        if not file.is_file():
            longest = max((run["measured_seconds"] for run in runs), default=0.0)
            if measured and time.monotonic() - began + longest > (stop_after_s or math.inf):
                raise Unfinished(f"{len(runs)} of {seeds} seeds are measured")
            if not measured:
                train({**settings, **_warm_up(make_recipe(str(settings["device"]), settings))}, None)
            write_text(file, json.dumps(measure_seed({**settings, "seed": seed}, goals, longest_s)))
            measured = True
        runs.append(json.loads(file.read_text()))
    return runs


def _warm_up(recipe: Recipe) -> dict[str, Any]:
    """Return the settings of a run that sees to it that all is compiled which a recipe takes."""
    last = recipe.stages[-1]
    decisions = LEAST_DECISIONS if last.split else 10
    return {"curriculum": str(replace(last.entry, generations=1, decisions=decisions)), "generations": 0}


def figures(runs: Sequence[Mapping[str, Any]], goals: Sequence[Goal]) -> dict[str, float]:
    """Return, for each goal that more than half of the runs reached, the median of their seconds.

    A run that did not reach it counts as later than any that did.
    """
    found = {}
    for goal in goals:
        reached = [run["reached"][goal.name] for run in runs]
        median = statistics.median_high([each["seconds"] if each else math.inf for each in reached])
        if median < math.inf:
            found[f"time_to_quality.{goal.name}.seconds"] = median
    return found


def summary(runs: Sequence[Mapping[str, Any]], goals: Sequence[Goal]) -> str:
    """Return the seconds of every seed and goal as a table."""
    medians, rows = figures(runs, goals), []
    for goal in goals:
        seconds = [run["reached"][goal.name] and run["reached"][goal.name]["seconds"] for run in runs]
        seconds.append(medians.get(f"time_to_quality.{goal.name}.seconds"))
        cells = ["-" if value is None else f"{value:.1f}" for value in seconds]
        rows.append([f"{goal.lines:,} lines on {goal.board}", *cells])
    return table(["goal", *(f"seed {run['seed']}" for run in runs), "median"], rows)


@measurement
def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print the table, write the result."""
    parser = make_parser(__doc__, devices=DEVICES)
    recipes = parser.add_mutually_exclusive_group()
    recipes.add_argument("--preset", default="quick", help="to train by (default: quick)")
    recipes.add_argument("--config", type=Path, metavar="FILE", help="settings as JSON, as of a run's config")
    parser.add_argument("--seeds", type=positive_int, default=5, help="seeds 1 to that (default: 5)")
    names = [goal.name for goal in GOALS]
    known, told = one_of("goal", names), f"this alone, may be given again: {', '.join(names)}"
    parser.add_argument("--goal", type=known, action="append", metavar="NAME", help=told)
    parser.add_argument("--time-limit", type=positive_seconds, metavar="S", help="cut every run off")
    parser.add_argument("--stop-after", type=positive_seconds, metavar="S", help="begin no run after")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep runs there, go on with those there")
    arguments, device = read(parser, argv)
    goals = [goal for goal in GOALS if goal.name in (arguments.goal or names)]
    limit = arguments.time_limit
    with one_line_errors(), tempfile.TemporaryDirectory() as name:
        given = read_settings(arguments.config) if arguments.config else {"preset": arguments.preset}
        settings = {**given, "device": device}
        recipe = make_recipe(device, settings)
        kept = arguments.keep or Path(name)
        begin(kept, device, [recipe.to_dict(), [goal.name for goal in goals], limit])
        build_for_training(recipe)
        runs = measure(settings, arguments.seeds, goals, limit, kept, arguments.stop_after)
    print(f"seconds from the start of the process, preset {recipe.preset}, engine {device}")
    print(summary(runs, goals))
    aims = [{"name": goal.name, "board": goal.board, "lines": goal.lines} for goal in goals]
    data = {"goals": aims, "time_limit": limit, "runs": runs}
    write_result(arguments.json, figures(runs, goals), data, device)


if __name__ == "__main__":
    run(main)
