"""Measure again what the literature says of Tetris controllers.

python scripts/measure reproduce published --quick
python scripts/measure noisy_ce_bcts_10x10 --json noisy_ce_bcts_10x10.json

Published controllers play by the published rule: on a GPU to 0.5 % and 5 % (95 % interval, to either side),
on a CPU to 3 % on 10x10, and on 10x20 for a minute. The searches on 10x20 are for a GPU.

In noisy cross-entropy searches one game says how good a candidate is. Szita & Lőrincz, Learning Tetris Using
the Noisy Cross-Entropy Method (2006), with the `bertsekas` features; Thiery & Scherrer, Improvements on
Learning Tetris with Cross Entropy (2009), with better ones, here `bcts`. As in the papers no two games have
their pieces in common: in generation t search s has the 130 streams from t * 2^32 + 130 s on, its mean the
first 30; the means of the end have 30 each from t * 2^32 + 2^31 + 30 s on. So a search is a function of seed
and noise alone. All searches play side by side in one rollout. A game that does not end is cut off after a
limit of decisions, and counts with the lines it has.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cem import CEMConfig, CrossEntropyMethod
from cem.run import ranks
from kernels.loader.toolchain import find_compiler
from kernels.support.progress import progress
from measure.provenance import Measured
from measure.work import least_lines
from tetris import LinearController, Policy, Rules, Streams, feature_names, resolve, rollout
from tetris.commands.command_line import fail, one_line_errors
from tetris.evaluation.comparison import PUBLISHED_SCORES
from tetris.evaluation.measurement import Limit, Trial
from tetris.evaluation.measurement import measure as measure_score
from tetris.play.controller import PUBLISHED

NOISES = ("none", "constant:4.0", "linear:5.0,10.0")
POPULATION, ELITES, VARIANCE, MEAN_GAMES = 100, 10, 100.0, 30

PIECE_SEED = int.from_bytes(sha256(b"cem-tetris noisy cross-entropy pieces").digest()[:8], "little")
"""Of the pieces; no score is played on them."""

_GENERATION_STREAMS, _LAST_STREAMS = 1 << 32, 1 << 31
_METHOD = {"population": POPULATION, "elites": ELITES, "variance": VARIANCE, "games_of_the_mean": MEAN_GAMES}
_METHOD |= {"piece_seed": PIECE_SEED}


class Plan(NamedTuple):
    """How much of the experiment is done."""

    features: str
    board: str
    seeds: int  # searches with each noise schedule, seeds 1 onwards
    generations: int
    limit: int  # decisions after which a game is cut off
    score_decisions: int  # by which the last mean of each search is scored, in streams of games

    @property
    def rules(self) -> Rules:
        """The published rules on the board."""
        return Rules(*Rules.parse_board(self.board))


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

BY_GENERATION = ("mean_lines", "mean_games_cut", "candidate_games_cut")
"""Lines of the mean's games before each generation, and how many games of both were cut off."""


class Search(NamedTuple):
    """One search, and its learning curve."""

    noise: str
    seed: int
    optimizer: CrossEntropyMethod
    curves: dict[str, list[float]]  # by `BY_GENERATION`


def make_searches(plan: Plan) -> list[Search]:
    """Return the searches at their start: every noise schedule for seed 1, then for seed 2, and so on."""
    start = torch.zeros(len(feature_names(plan.features, plan.rules.width)))
    configs = {noise: CEMConfig.classic(noise, num_elites=ELITES) for noise in NOISES}
    make = functools.partial(CrossEntropyMethod, start, VARIANCE**0.5, POPULATION, maximize=True)
    return [
        Search(noise, seed, make(config=configs[noise], seed=seed), {k: [] for k in BY_GENERATION})
        for seed in range(1, plan.seeds + 1)
        for noise in NOISES
    ]


def run_experiment(plan: Plan, device: str) -> dict[str, Any]:
    """Run the searches of a plan.

    But for the seconds the result is a function of the plan alone: the searches are on the CPU, and the
    engines agree.
    """
    began, decisions = time.perf_counter(), 0
    searches = make_searches(plan)
    desc, unit = f"{plan.features} on {plan.board}", " generations"
    for generation in (bar := progress(range(plan.generations + 1), desc=desc, unit=unit)):
        last = generation == plan.generations  # the mean alone
        rows = [search.optimizer.mean.expand(MEAN_GAMES, -1) for search in searches]
        if not last:
            candidates = [search.optimizer.ask() for search in searches]
            rows = [torch.cat(pair) for pair in zip(rows, candidates, strict=True)]
        first_stream = generation * _GENERATION_STREAMS + (_LAST_STREAMS if last else 0)
        lines, games, made = _play_once(plan, device, rows, first_stream)
        decisions += made
        for i, (search, own_lines, own_games) in enumerate(zip(searches, lines, games, strict=True)):
            mean_lines, mean_cut, candidates_cut = search.curves.values()
            mean_lines.append(round(float(own_lines[:MEAN_GAMES].double().mean()), 2))
            mean_cut.append(int((own_games[:MEAN_GAMES] == 0).sum()))
            if not last:
                candidates_cut.append(int((own_games[MEAN_GAMES:] == 0).sum()))
                search.optimizer.tell(candidates[i], own_lines[MEAN_GAMES:])
        best = max(search.curves["mean_lines"][-1] for search in searches)
        bar.set_postfix_str(f"best mean {best:,.0f} lines per game", refresh=False)
    seconds = round(time.perf_counter() - began, 1)
    found = []
    for noise, seed, optimizer, curves in searches:  # scored as published controllers are: nothing is cut off
        weights = optimizer.mean.tolist()
        mean = LinearController(plan.features, tuple(weights), plan.rules)
        trial = Trial("mean", mean, plan.rules, device)
        s = measure_score(trial, Limit(decisions=plan.score_decisions)).score
        score = {"lines_per_game": s.lines_per_game, "ci95": list(s.ci95), **asdict(s)}
        found.append({"noise": noise, "seed": seed, **curves, "weights": weights, "score": score})
    about = {"plan": plan._asdict(), "method": _METHOD, "searches": found}
    return {**about, "decisions": decisions, "seconds": seconds}


def _play_once(plan: Plan, device: str, rows: list[Tensor], first_stream: int) -> tuple[Tensor, Tensor, int]:
    """Play one game with every row of every search's weights; lines and games ended, and all decisions."""
    weights = torch.cat(list(rows))
    own = ranks.share(len(weights))
    streams = Streams(plan.rules, 1, PIECE_SEED, first_stream + own.start, shared=False, games=1)
    result = rollout(Policy(weights[own], plan.features), streams, plan.limit, device)
    counts = torch.stack([result.lines, result.games, result.decisions], dim=1).cpu()
    lines, games, decisions = ranks.gather(counts, len(weights)).unbind(1)
    return lines.reshape(len(rows), -1), games.reshape(len(rows), -1), int(decisions.sum())


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
