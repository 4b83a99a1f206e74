"""Measure again what the literature says of Tetris controllers.

python scripts/measure reproduce published --quick
python scripts/measure noisy_ce_bcts_10x10 --json noisy_ce_bcts_10x10.json

Published controllers play by the published rule: on a GPU to 0.5 % and 5 % (95 % interval, to either side),
on a CPU to 3 % on 10x10, and on 10x20 for a minute. The searches on 10x20 are for a GPU.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from statistics import median

from kernels.loader.toolchain import find_compiler
from measure.noisy_ce import BY_GENERATION, NOISES, Plan, run_experiment
from measure.provenance import Measured
from measure.work import least_lines
from tetris import Rules
from tetris.commands.command_line import fail, one_line_errors
from tetris.evaluation.comparison import PUBLISHED_SCORES
from tetris.evaluation.scores import Limit, Trial
from tetris.evaluation.scores import measure as measure_score
from tetris.play.controller import PUBLISHED, resolve

PLANS: Mapping[str, Plan] = {
    f"noisy_ce_{plan.features}_{plan.board}": plan
    for plan in (
        Plan("bertsekas", "10x10", 10, 60, 100_000, 1_000_000),
        Plan("bcts", "10x10", 10, 15, 100_000, 5_000_000),
        Plan("bertsekas", "10x20", 10, 80, 4_000_000, 1_000_000_000),
        # With these features most games soon outlive any limit: what one game can teach is learned early.
        Plan("bcts", "10x20", 10, 20, 4_000_000, 6_400_000_000),
    )
}
PRECISION: Mapping[str, Mapping[str, float]] = {
    "cpu": {"10x10": 0.03},
    "cuda": {"10x10": 0.005, "10x20": 0.05},
}
"""How far from the score its interval may reach at most, by board, as a share of the score."""

BOARDS = ("10x10", "10x20")
CPU_SCORE_DECISIONS = 20_000_000  # the most by which a search is scored where a CPU plays
QUICK_SEEDS, SECONDS, QUICK_SECONDS = 3, 60.0, 3.0

_LINES_PER_DECISION = 0.4  # four cells a piece, ten a line
_UNKNOWN = 4000.0  # lines per game on 10x10, where no paper says anything
_SPARE = 1.25  # for a controller that is better than its paper says, and for luck
_ROUND = 10**6


def decisions_for(controller: str, board: str, precision: float) -> int:
    """Return the decisions for a 95 % interval that reaches no further than ``precision`` from the score.

    That is so, but for one time in a thousand, for a published controller that is as good as its paper says,
    or a seventh better. The number does not depend on how the games go: no stopping rule bends the score.
    """
    paper = PUBLISHED_SCORES[controller].get(board)
    lines = _UNKNOWN if paper is None else (paper.low + paper.high) / 2
    games = (1.96 * (1 + precision) / precision) ** 2
    return math.ceil(games * lines / _LINES_PER_DECISION * _SPARE / _ROUND) * _ROUND


def published(device: str, quick: bool) -> Measured:
    """Return what every published controller scores, for some seconds where no precision is asked for."""
    precision, seconds = PRECISION["cpu" if quick else device], QUICK_SECONDS if quick else SECONDS
    measured, figures = [], {}
    for board in BOARDS:
        rules = Rules(*Rules.parse_board(board))
        for name in PUBLISHED:
            limit = Limit(seconds=seconds)
            if board in precision:
                limit = Limit(decisions=decisions_for(name, board, precision[board]))
            found = measure_score(Trial(name, resolve(name), rules, device), limit)
            measured.append(found.to_dict())
            least = "" if found.score.games else "_at_least"
            figure = f"reproduce.published.{name}.{board}.lines_per_game{least}"
            figures[figure] = least_lines(measured[-1])
    return Measured(figures, {"precision": precision, "seconds": seconds, "measurements": measured})


def noisy_ce(name: str, device: str, quick: bool) -> Measured:
    """Return what the noisy cross-entropy searches of a plan come to."""
    plan = PLANS[name]._replace(seeds=QUICK_SEEDS) if quick else PLANS[name]
    if device == "cpu":
        plan = plan._replace(score_decisions=min(plan.score_decisions, CPU_SCORE_DECISIONS))
    experiment = run_experiment(plan, device)
    figures = {
        f"reproduce.{name}.{noise.partition(':')[0]}.lines_per_game_median": median(
            least_lines(each["score"]) for each in experiment["searches"] if each["noise"] == noise
        )
        for noise in NOISES
    }
    series = [
        {key: each[key] for key in ("noise", "seed")} | {key: each.pop(key) for key in BY_GENERATION}
        for each in experiment["searches"]
    ]
    return Measured(figures, experiment, {"": series})


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the figures of the experiments, and the details of the last one."""
    names = arguments.experiments or [name for name in ("published", *PLANS) if not name.endswith("10x20")]
    if arguments.json and len(names) > 1:
        fail(f"expected one experiment with --json, got {len(names)}")
    with one_line_errors():
        find_compiler()  # the reference implementation would play for weeks
    quick = arguments.quick
    found = [published(device, quick) if x == "published" else noisy_ce(x, device, quick) for x in names]
    return found[-1]._replace(figures={name: x for each in found for name, x in each.figures.items()})
