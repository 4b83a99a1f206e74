"""Measure lines per game of controllers on boards: played, or estimated by importance splitting.

python scripts/measure scores runs/mine dt20 --boards 10x10 10x12
python scripts/measure scores best dt20 --boards 10x5 --ways known1 ahead known2
python scripts/measure scores best --boards 10x16 10x20 --estimated

In the way known1 a player knows the piece that falls, with ahead it also thinks of all that may come next,
with known2 it knows the next one. Controllers play the same pieces, and played ones stand beside DT-20.
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import Any

from measure.provenance import Measured
from measure.work import build_engines, least_lines
from tetris import Lookahead, Rules, Score
from tetris.commands.arguments import read_controllers
from tetris.commands.command_line import one_line_errors
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.estimates import ESTIMATES, estimate
from tetris.evaluation.scores import Limit, Trial
from tetris.evaluation.scores import measure as play

WAYS = {"known1": Lookahead.NONE, "ahead": Lookahead.EXPECTIMAX, "known2": Lookahead.PREVIEW}
ESTIMATED, REFERENCE = 2 * ESTIMATES, "dt20"


def ratio(score: Score, other: Score) -> dict[str, Any]:
    """Return how many times as many lines per game one score says as another, with its 95 % interval.

    It is exact: games ended are Poisson, those of one controller binomial given those of both (Przyborowski
    and Wilenski, Biometrika 31, 1940), with the interval of Clopper and Pearson (Biometrika 26, 1934). The
    upper end is None where the first ended no game.
    """
    from scipy.stats import binomtest

    games = score.games + other.games
    low, high = binomtest(score.games, games).proportion_ci(0.95, "exact") if games else (0.0, 1.0)
    exposure = score.lines / other.lines
    # A share p of the games: as many times the games a line as p / (1 - p) / exposure.
    ends = [exposure * (1 - high) / high, exposure * (1 - low) / low if low else None]
    value = exposure * other.games / score.games if score.games and other.games else None
    return {"value": value, "ci95": ends}


def _measured(trial: Trial, asked: argparse.Namespace) -> dict[str, Any]:
    if asked.estimated:
        return estimate(trial, lambda found: len(found.rates) >= ESTIMATED).to_dict()
    return play(trial, Limit(decisions=asked.decisions)).to_dict()


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return lines per game by board, rule, pieces, way and controller."""
    found, figures = list[dict[str, Any]](), dict[str, float]()
    seed = DEFAULT_SEED if arguments.seed is None else arguments.seed
    with one_line_errors():
        kind_of_game = arguments.rule, arguments.pieces
        boards = [Rules.of(*Rules.parse_board(each), *kind_of_game) for each in arguments.boards]
        pairs = [read_controllers(arguments.controllers, rules) for rules in boards]
    if device == "cuda":
        features = {
            (each.features, x.width) for x, some in zip(boards, pairs, strict=True) for _, each in some
        }
        build_engines(features, [WAYS[way] for way in arguments.ways])
    kind = "estimated" if arguments.estimated else "played"
    for (rules, some), way in product(zip(boards, pairs, strict=True), arguments.ways):
        trials = [Trial(label, each, rules, device, seed, WAYS[way]) for label, each in some]
        scores = {trial.label: _measured(trial, arguments) for trial in trials}
        for label, each in scores.items():
            name = f"scores.{rules.board}.{rules.rule}.{rules.pieces}.{way}.{label}.{kind}"
            figures[name] = least_lines(each)
            if kind == "played" and REFERENCE in scores and each["lines"] and scores[REFERENCE]["lines"]:
                pair = (Score(x["lines"], x["games"], x["decisions"]) for x in (each, scores[REFERENCE]))
                each["ratio"] = ratio(*pair)
        found += scores.values()
    return Measured(figures, {"estimates" if arguments.estimated else "measurements": found})
