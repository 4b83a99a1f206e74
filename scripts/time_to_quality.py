"""Measure how long training takes to reach given scores, from nothing: wall time, over several seeds.

python scripts/time_to_quality.py        # five seeds of the default preset
python scripts/time_to_quality.py --device cpu --seeds 3 --json out.json
python scripts/time_to_quality.py --time-limit 180 --goal 10x20.51M

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
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from _continued import Unfinished
from _results import describe, write_json

from kernels.files import check_writable
from tetris import LinearController, Rollout, Rules, Score
from tetris.commands.arguments import add_device
from tetris.commands.command_line import Parser, one_line_errors, one_of, positive_int, positive_seconds, run
from tetris.devices import choose_device
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.estimates import Estimate, estimate
from tetris.evaluation.scores import MOST_STREAMS, STREAMS
from tetris.evaluation.text_table import table
from tetris.score import chi2_quantile
from tetris.splitting import LEAST_DECISIONS
from tetris.training.presets import Setting
from tetris.training.recipe import Recipe, make_recipe, read_settings

ROOT = Path(__file__).resolve().parent.parent
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
    """A score to be reached.

    Attributes:
        board: The board, as WIDTHxHEIGHT.
        lines: Lines per game on it.
    """

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
    """Return the first of so many moments that reaches a goal, by bisection; None where the last does not.

    Args:
        count: How many moments there are, in order.
        reached: Tells whether one does. Once one does, later ones are taken to do so as well.
    """
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


def appraise(weights: Sequence[float], features: str, goal: Goal, device: str) -> Estimate:
    """Estimate a controller until it is clear on which side of a goal it is.

    Args:
        weights: Its weights.
        features: Its feature set.
        goal: The goal.
        device: The engine.
    """
    rules = Rules(*Rules.parse_board(goal.board))
    controller = LinearController(features, tuple(weights), rules)

    def enough(found: Estimate) -> bool:
        low, high = found.interval(1 - 2 * _DOUBT)
        clear = low > goal.lines or (high is not None and high < goal.lines)
        return clear or len(found.rates) >= MOST_ESTIMATES

    return estimate(goal.name, controller, rules, device, enough)


def judge(weights: Sequence[float], features: str, goal: Goal, device: str, games: int = GAMES) -> Score:
    """Play a controller until it is clear on which side of a goal it is.

    Args:
        weights: Its weights.
        features: Its feature set.
        goal: The goal.
        device: The engine.
        games: The games after which that is as clear as it has to be.
    """
    streams = {"cuda": MOST_STREAMS, "cpu": STREAMS}.get(device, 1)
    rules = Rules(*Rules.parse_board(goal.board))
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
    """Tell whether a score that is looked at again and again is clearly on one side of a number of lines.

    It is, where the interval of 99.9 % leaves it out: one of 95 % would too often do so by luck, at one of so
    many looks. That of the Poisson distribution, since decisions are given and games counted.
    """
    low = 2 * score.lines / chi2_quantile(1 - _DOUBT, 2 * score.games + 2)
    high = 2 * score.lines / chi2_quantile(_DOUBT, 2 * score.games) if score.games else math.inf
    return not low <= lines <= high


def reached_at(moments: Sequence[Moment], features: str, goal: Goal, device: str) -> dict[str, Any] | None:
    """Return the first moment at which a run has reached a goal, with its score; None where it has not."""
    scores: dict[int, Score | Estimate] = {}
    estimated = device == "cpu" and goal.lines > PLAYED_LINES

    def reached(index: int) -> bool:
        score = (appraise if estimated else judge)(moments[index]["weights"], features, goal, device)
        scores[index] = score
        return score.lines_per_game is None or score.lines_per_game >= goal.lines

    index = first_reached(len(moments), reached)
    if index is None:
        return None
    score = scores[index]
    return {
        "seconds": moments[index]["seconds"],
        "generation": moments[index]["generation"],
        "decisions": moments[index]["decisions"],
        "lines_per_game": score.lines_per_game,
        "ci95": list(score.ci95),
        **({"estimates": len(score.rates)} if isinstance(score, Estimate) else {"games": score.games}),
    }


def train(settings: Mapping[str, Any], folder: Path, longest_s: float | None = None) -> dict[str, Any]:
    """Train in a process of its own, so many seconds at most; what `_timed_training` says of it.

    Raises:
        RuntimeError: If it fails.
    """
    config, out = folder / "settings.json", folder / "run.json"
    config.write_text(json.dumps(settings))
    script = ROOT / "scripts" / "_timed_training.py"
    limit = () if longest_s is None else (str(longest_s),)
    command = [sys.executable, str(script), str(config), str(time.time()), str(out), *limit]
    if subprocess.run(command, check=False).returncode:
        raise RuntimeError(f"expected {' '.join(command[1:])} to succeed")
    result: dict[str, Any] = json.loads(out.read_text())
    return result


def measure_seed(
    settings: Mapping[str, Any], goals: Sequence[Goal], folder: Path, longest_s: float | None
) -> dict[str, Any]:
    """Return a run, and when it reached each goal.

    Args:
        settings: Of the run, with device and seed.
        goals: The goals.
        folder: For files in between.
        longest_s: The seconds after which training is cut off.
    """
    began = time.monotonic()
    found = train(settings, folder, longest_s)
    features, moments = found["config"]["features"], found["moments"]
    when = {goal.name: reached_at(moments, features, goal, settings["device"]) for goal in goals}
    return {
        "seed": settings["seed"],
        "total_seconds": moments[-1]["seconds"] if moments else longest_s,
        "measured_seconds": time.monotonic() - began,
        "reached": when,
        **found,
    }


def measure(
    device: str,
    seeds: int,
    settings: Mapping[str, Any],
    goals: Sequence[Goal],
    longest_s: float | None = None,
    kept: Path | None = None,
    stop_after_s: float | None = None,
) -> dict[str, Any]:
    """Return a result: for every seed and goal, when it was reached.

    Args:
        device: The engine.
        seeds: How many: 1 to that.
        settings: Of the runs.
        goals: The goals.
        longest_s: The seconds after which a run is cut off; None: never.
        kept: A folder where the runs stay: called again with the same arguments and sources, it measures only
            those that are not there. None: they do not.
        stop_after_s: Begin no run that is unlikely to be done after so many seconds, but one at least.

    Raises:
        Unfinished: If there was no time for all of them.
    """
    began = time.monotonic()
    origin = describe("time_to_quality", device, engine=True, splitting=True)
    recipe = make_recipe(device, settings)
    given = {
        **{name: origin[name] for name in ("device", "sources", "versions")},
        "machine": {name: origin["machine"].get(name) for name in ("processor", "vectors", "cores", "gpu")},
        "recipe": recipe.to_dict(),
        "goals": [goal.name for goal in goals],
        "time_limit": longest_s,
    }
    runs: list[dict[str, Any]] = []
    measured = 0
    with tempfile.TemporaryDirectory() as name:
        for seed in range(1, seeds + 1):
            file = (kept or Path(name)) / f"seed-{seed}.json"
            known = json.loads(file.read_text()) if file.is_file() else {}
            if known.get("given") != given:
                longest = max((run["measured_seconds"] for run in runs), default=0.0)
                over = time.monotonic() - began + longest > (stop_after_s or math.inf)
                if measured and over:
                    raise Unfinished(f"{len(runs)} of {seeds} seeds are measured")
                if not measured:
                    train({**settings, "device": device, **_warm_up(recipe)}, Path(name))
                run = measure_seed({**settings, "device": device, "seed": seed}, goals, Path(name), longest_s)
                known = {"given": given, "run": run}
                write_json(file, known)
                measured += 1
            runs.append(known["run"])
    return {
        **describe("time_to_quality", device, engine=True, splitting=True),
        "figures": figures(runs, goals),
        "goals": [{"name": goal.name, "board": goal.board, "lines": goal.lines} for goal in goals],
        "time_limit": longest_s,
        "runs": runs,
    }


def _warm_up(recipe: Recipe) -> dict[str, Setting]:
    """Return the settings of a run that sees to it that all is compiled which a recipe takes."""
    last = recipe.stages[-1]
    decisions = LEAST_DECISIONS if last.split else 10
    return {"curriculum": str(replace(last.entry, generations=1, decisions=decisions)), "generations": 0}


def without_moments(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result for a report: without what the runs knew every second."""
    runs = [{key: value for key, value in run.items() if key != "moments"} for run in result["runs"]]
    return {**result, "runs": runs}


def figures(runs: Sequence[Mapping[str, Any]], goals: Sequence[Goal]) -> dict[str, float]:
    """Return, for each goal that more than half of the runs reached, the median of their seconds.

    A run that did not reach it counts as later than any that did.
    """
    found = {}
    for goal in goals:
        seconds = sorted(
            run["reached"][goal.name]["seconds"] if run["reached"][goal.name] else float("inf")
            for run in runs
        )
        median = statistics.median_high(seconds)
        if median < float("inf"):
            found[f"time_to_quality.{goal.name}.seconds"] = median
    return found


def summary(result: Mapping[str, Any]) -> str:
    """Return the seconds of every seed and goal as a table."""
    rows = []
    for goal in result["goals"]:
        when = [run["reached"][goal["name"]] for run in result["runs"]]
        median = result["figures"].get(f"time_to_quality.{goal['name']}.seconds")
        cells = [f"{each['seconds']:.1f}" if each else "-" for each in when]
        name = f"{goal['lines']:,} lines on {goal['board']}"
        rows.append([name, *cells, f"{median:.1f}" if median is not None else "-"])
    return table(["goal", *(f"seed {run['seed']}" for run in result["runs"]), "median"], rows)


def main() -> int:
    """Measure and print; 1 where a run failed."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...]")
    add_device(parser)
    recipe = parser.add_mutually_exclusive_group()
    recipe.add_argument("--preset", default="quick", metavar="NAME", help="to train by (default: quick)")
    recipe.add_argument(
        "--config", type=Path, metavar="FILE", help="settings as JSON, such as the config.json of a run"
    )
    parser.add_argument(
        "--seeds", type=positive_int, default=5, metavar="N", help="seeds 1 to N (default: 5)"
    )
    names = [goal.name for goal in GOALS]
    parser.add_argument(
        "--goal",
        type=one_of("goal", names),
        action="append",
        metavar="NAME",
        help=f"this alone, may be given again: {', '.join(names)} (default: all)",
    )
    parser.add_argument(
        "--time-limit", type=positive_seconds, metavar="S", help="cut every run off after S seconds"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result")
    arguments = parser.parse_args()
    with one_line_errors():
        if arguments.json is not None:
            check_writable(arguments.json)
        device = choose_device(arguments.device)
        given = read_settings(arguments.config) if arguments.config else {"preset": arguments.preset}
        preset = make_recipe(device, given).preset
    goals = [goal for goal in GOALS if goal.name in (arguments.goal or [goal.name])]
    try:
        result = measure(device, arguments.seeds, given, goals, arguments.time_limit)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"seconds from the start of the process, preset {preset}, engine {device}")
    print(summary(result))
    if arguments.json is not None:
        with one_line_errors():
            write_json(arguments.json, result)
    return 0


if __name__ == "__main__":
    run(main)
