"""Repeat measurements of the literature on Tetris controllers.

python scripts/measure reproduce published --quick
python scripts/measure noisy_ce_bcts_10x10 --json noisy_ce_bcts_10x10.json

Published controllers play by the published rule. On a GPU they play until the half-width of
the 95 % interval is 0.5 % of the score on 10x10, and 5 % on 10x20. On a CPU they play to 3 % on
10x10, and for a minute on 10x20. The searches on 10x20 need a GPU.

In noisy cross-entropy searches the fitness of a candidate is the number of lines in one game.
Szita & Lőrincz, Learning Tetris Using the Noisy Cross-Entropy Method (2006), use the features
`bertsekas`. Thiery & Scherrer, Improvements on Learning Tetris with Cross Entropy (2009), use
better features, here `bcts`. As in the papers, no two games have the same pieces. In generation
t, search s has the 130 streams from number t * 2^32 + 130 s on; its mean plays the first 30 of
them. After the last generation its mean plays the 30 streams from t * 2^32 + 2^31 + 30 s on. So
the result of a search depends only on its seed and its noise. All searches play in one rollout.
A game that does not end is cut off after a limit of decisions, and its lines until then count.
"""

import argparse
import math
import time
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
POPULATION = 100
ELITES = 10
VARIANCE = 100.0
MEAN_GAMES = 30

PIECE_SEED = int.from_bytes(
    sha256(b"cem-tetris noisy cross-entropy pieces").digest()[:8], "little"
)
"""Seed of the pieces; scores have another one."""

_GENERATION_STREAMS = 1 << 32
_LAST_STREAMS = 1 << 31
_METHOD = {
    "population": POPULATION,
    "elites": ELITES,
    "variance": VARIANCE,
    "games_of_the_mean": MEAN_GAMES,
    "piece_seed": PIECE_SEED,
}


class Plan(NamedTuple):
    """The size of an experiment.

    Attributes:
        features: The feature set of the candidates.
        board: The board, such as "10x20".
        seeds: The number of searches with each noise schedule. Their seeds are 1, 2, ...
        generations: The number of generations of a search.
        limit: The number of decisions after which a game is cut off.
        score_decisions: The number of decisions in the score of a search's last mean.
    """

    features: str
    board: str
    seeds: int
    generations: int
    limit: int
    score_decisions: int

    @property
    def rules(self) -> Rules:
        """The published rules on the board."""
        return Rules(*Rules.parse_board(self.board))


PLANS = {
    f"noisy_ce_{plan.features}_{plan.board}": plan
    for plan in (
        Plan("bertsekas", "10x10", 10, 60, 100_000, 1_000_000),
        Plan("bcts", "10x10", 10, 15, 100_000, 5_000_000),
        Plan("bertsekas", "10x20", 10, 80, 4_000_000, 1_000_000_000),
        # With these features most games soon reach any limit, so few generations are enough.
        Plan("bcts", "10x20", 10, 20, 4_000_000, 6_400_000_000),
    )
}
PRECISION = {
    "cpu": {"10x10": 0.03},
    "cuda": {"10x10": 0.005, "10x20": 0.05},
}
"""By device and board, the half-width of a score's 95 % interval divided by the score."""

BOARDS = ("10x10", "10x20")
CPU_SCORE_DECISIONS = 20_000_000  # The most decisions in a search's score on a CPU.
QUICK_SEEDS = 3
SECONDS = 60.0
QUICK_SECONDS = 3.0

_LINES_PER_DECISION = 0.4  # A piece has four cells, a line ten.
_UNKNOWN = 4000.0  # Lines per game on 10x10 if no paper has a figure.
_SPARE = 1.25  # A margin for chance, and for controllers that play better than in their papers.
_ROUND = 10**6

BY_GENERATION = ("mean_lines", "mean_games_cut", "candidate_games_cut")
"""Lines per game of the mean; numbers of games, of the mean and of candidates, cut off."""


class Search(NamedTuple):
    """A search and its learning curves.

    Attributes:
        noise: The noise schedule.
        seed: The seed.
        optimizer: The cross-entropy method.
        curves: A list with one number per generation for every name in `BY_GENERATION`.
    """

    noise: str
    seed: int
    optimizer: CrossEntropyMethod
    curves: dict[str, list[float]]

    def add_means(self, lines: Tensor, games: Tensor) -> None:
        """Add the results of the means of a generation to the learning curves."""
        self.curves["mean_lines"].append(round(float(lines.double().mean()), 2))
        self.curves["mean_games_cut"].append(int((games == 0).sum()))


def make_searches(plan: Plan) -> list[Search]:
    """Return the searches of an experiment before their first generation.

    There is one search for every seed and noise schedule, in the order of the seeds. A noise
    schedule is the variance that is added in each generation. The first mean of a search is 0.
    """
    weight_count = len(feature_names(plan.features, plan.rules.width))
    start = torch.zeros(weight_count)
    searches = []
    for seed in range(1, plan.seeds + 1):
        for noise in NOISES:
            optimizer = CrossEntropyMethod(
                start,
                VARIANCE**0.5,
                POPULATION,
                maximize=True,
                config=CEMConfig.classic(noise, num_elites=ELITES),
                seed=seed,
            )
            curves: dict[str, list[float]] = {name: [] for name in BY_GENERATION}
            searches.append(Search(noise, seed, optimizer, curves))
    return searches


def _play_generation(plan: Plan, device: str, searches: list[Search], generation: int) -> int:
    """Play a generation of all searches, and add its results to their learning curves.

    The mean of each search plays `MEAN_GAMES` games, and each candidate plays one. All games
    are played in one rollout. After the last generation only the means play.

    Args:
        plan: The plan of the experiment.
        device: The device of the rollout.
        searches: The searches, which are updated.
        generation: The number of the generation, from 0.

    Returns:
        The number of decisions of all games.
    """
    is_after_last = generation == plan.generations
    # A stream is a numbered sequence of pieces. No two players play the same stream: each
    # generation has its own range of stream numbers.
    first_stream = generation * _GENERATION_STREAMS
    if is_after_last:
        # These games decide the result, so they have streams of their own.
        first_stream += _LAST_STREAMS
    # A player is a vector of weights that plays one game. The players of a search are
    # `MEAN_GAMES` copies of its mean, then its candidates.
    players = [search.optimizer.mean.expand(MEAN_GAMES, -1) for search in searches]
    if not is_after_last:
        candidates = [search.optimizer.ask() for search in searches]
        players = [torch.cat(pair) for pair in zip(players, candidates, strict=True)]
    lines, games, decisions = _play_once(plan, device, players, first_stream)
    # Row s of `lines` and `games` has the results of the players of search s. `games` is 1 if
    # the game ended, and 0 if it was cut off at the limit of decisions.
    for number, search in enumerate(searches):
        search.add_means(lines[number, :MEAN_GAMES], games[number, :MEAN_GAMES])
        if not is_after_last:
            is_cut = games[number, MEAN_GAMES:] == 0
            search.curves["candidate_games_cut"].append(int(is_cut.sum()))
            search.optimizer.tell(candidates[number], lines[number, MEAN_GAMES:])
    return decisions


def run_experiment(plan: Plan, device: str) -> dict[str, Any]:
    """Run the searches of an experiment together; return their learning curves and scores.

    Equal plans give equal results on every device, apart from the measured seconds: the
    searches always run on the CPU, and games are the same on all devices.
    """
    start_time = time.perf_counter()
    decisions = 0
    searches = make_searches(plan)
    # In one more round, after the last generation, only the means play.
    bar = progress(
        range(plan.generations + 1),
        desc=f"{plan.features} on {plan.board}",
        unit=" generations",
    )
    for generation in bar:
        decisions += _play_generation(plan, device, searches, generation)
        best = max(search.curves["mean_lines"][-1] for search in searches)
        bar.set_postfix_str(f"best mean {best:,.0f} lines per game", refresh=False)
    seconds = round(time.perf_counter() - start_time, 1)
    return {
        "plan": plan._asdict(),
        "method": _METHOD,
        "searches": [_score_search(search, plan, device) for search in searches],
        "decisions": decisions,
        "seconds": seconds,
    }


def _score_search(search: Search, plan: Plan, device: str) -> dict[str, Any]:
    """Score the last mean of a search; return its learning curves, weights and score.

    The score is the lines per game of a controller with these weights. It is measured as for
    published controllers, so no game is cut off.
    """
    weights = search.optimizer.mean.tolist()
    controller = LinearController(plan.features, tuple(weights), plan.rules)
    trial = Trial("mean", controller, plan.rules, device)
    score = measure_score(trial, Limit(decisions=plan.score_decisions)).score
    counts = asdict(score)  # The lines per game and the interval are computed from these.
    return {
        "noise": search.noise,
        "seed": search.seed,
        **search.curves,
        "weights": weights,
        "score": {
            "lines_per_game": score.lines_per_game,
            "ci95": list(score.ci95),
            **counts,
        },
    }


def _play_once(
    plan: Plan, device: str, players: list[Tensor], first_stream: int
) -> tuple[Tensor, Tensor, int]:
    """Play one game with every player of every search, and return the results.

    A game that does not end is cut off after `plan.limit` decisions. If several processes run
    the experiment together, each plays a share of the games and receives all results.

    Args:
        plan: The features, the rules and the limit.
        device: The device of the rollout.
        players: For each search the weights of its players, shape (players, features).
        first_stream: The number of the first player's stream of pieces. The other players have
            the following streams, so no two play the same pieces.

    Returns:
        The lines of each player, shape (searches, players).
        The number of finished games of each player, 0 or 1, shape (searches, players).
        The number of decisions of all players.
    """
    weights = torch.cat(players)  # Shape (players of all searches, features).
    share = ranks.share(len(weights))  # The slice of the players that this process plays.
    streams = Streams(
        plan.rules,
        count=1,
        seed=PIECE_SEED,
        first=first_stream + share.start,
        shared=False,
        games=1,
    )
    result = rollout(Policy(weights[share], plan.features), streams, plan.limit, device)
    counts = torch.stack([result.lines, result.games, result.decisions], dim=1).cpu()
    all_counts = ranks.gather(counts, len(weights))  # Those of all processes.
    lines, games, decisions = all_counts.unbind(1)
    searches = len(players)
    return lines.reshape(searches, -1), games.reshape(searches, -1), int(decisions.sum())


def decisions_for(controller: str, board: str, precision: float) -> int:
    """Return how many decisions a controller has to play for a score of a given precision.

    The number does not depend on the games that are played, so it does not bias the score.

    Args:
        controller: The name of a published controller.
        board: The board, such as "10x20".
        precision: The half-width of the 95 % interval divided by the score. It is reached with
            a probability of 0.999 if the controller is at most a seventh better than in its
            paper.
    """
    paper = PUBLISHED_SCORES[controller].get(board)
    lines = _UNKNOWN if paper is None else sum(paper) / 2  # Per game.
    # The standard deviation of a game's lines is about their mean, so the relative error of n
    # games is 1 / sqrt(n). The half-width of the 95 % interval is 1.96 standard errors.
    games = (1.96 * (1 + precision) / precision) ** 2
    decisions = games * lines / _LINES_PER_DECISION * _SPARE
    return math.ceil(decisions / _ROUND) * _ROUND


def published(device: str, quick: bool) -> Measured:
    """Measure the scores of the published controllers on both boards, in lines per game.

    The precision of a score is the half-width of its 95 % interval divided by the score. If
    `PRECISION` has one for the board on this device, a controller makes as many decisions as it
    needs to reach it. Otherwise it plays for some seconds. If no game ends, only a lower bound
    of the score is known, and the name of its figure ends with "_at_least".

    Args:
        device: The device that plays.
        quick: Whether to play less: only to the precision for a CPU, and for fewer seconds.
    """
    precision_by_board = PRECISION["cpu" if quick else device]
    seconds = QUICK_SECONDS if quick else SECONDS
    measurements = []
    figures = {}
    for board in BOARDS:
        rules = Rules(*Rules.parse_board(board))
        for name in PUBLISHED:
            limit = Limit(seconds=seconds)
            if board in precision_by_board:
                decisions = decisions_for(name, board, precision_by_board[board])
                limit = Limit(decisions=decisions)
            trial = Trial(name, resolve(name), rules, device)
            measurement = measure_score(trial, limit).to_dict()
            measurements.append(measurement)
            figure = f"reproduce.published.{name}.{board}.lines_per_game"
            if measurement["lines_per_game"] is None:  # No game ended.
                figure += "_at_least"
            figures[figure] = least_lines(measurement)
    data = {"precision": precision_by_board, "seconds": seconds, "measurements": measurements}
    return Measured(figures, data)


def noisy_ce(name: str, device: str, quick: bool) -> Measured:
    """Run an experiment with noisy cross-entropy searches.

    The fitness of a candidate is the number of lines in one game. The figures are the median
    scores of the searches with each noise schedule. The details describe all searches. The
    series has the learning curves, with one record for each search.

    Args:
        name: The name of the experiment, a key of `PLANS`.
        device: The device that plays. On a CPU scores have fewer decisions.
        quick: Whether to run fewer searches.
    """
    plan = PLANS[name]
    if quick:
        plan = plan._replace(seeds=QUICK_SEEDS)
    if device == "cpu":
        score_decisions = min(plan.score_decisions, CPU_SCORE_DECISIONS)
        plan = plan._replace(score_decisions=score_decisions)
    experiment = run_experiment(plan, device)
    searches = experiment["searches"]
    figures = {}
    for noise in NOISES:
        scores = [search["score"] for search in searches if search["noise"] == noise]
        schedule = noise.partition(":")[0]  # "linear" of "linear:5.0,10.0".
        figure = f"reproduce.{name}.{schedule}.lines_per_game_median"
        # `least_lines` returns the lines per game, or a lower bound if no game ended.
        figures[figure] = median(map(least_lines, scores))
    # Move the curves from the details into the series, which is written to a separate file.
    series = []
    for search in searches:
        curves = {key: search.pop(key) for key in BY_GENERATION}
        series.append({"noise": search["noise"], "seed": search["seed"], **curves})
    # The key of a series is added to the name of its file. The only series needs no ending.
    return Measured(figures, experiment, {"": series})


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Run experiments; return the figures of all of them, and the details of the last one.

    Without names all experiments run except the searches on the board 10x20, which keep a GPU
    busy for hours.
    """
    names = arguments.experiments
    if not names:
        names = [name for name in ("published", *PLANS) if not name.endswith("10x20")]
    if arguments.json and len(names) > 1:
        fail(f"expected one experiment with --json, got {len(names)}")
    # Without a compiler, the engine in Python would play for weeks. So this is an error.
    with one_line_errors():
        find_compiler()
    figures: dict[str, float] = {}
    for name in names:
        if name == "published":
            result = published(device, arguments.quick)
        else:
            result = noisy_ce(name, device, arguments.quick)
        figures |= result.figures
    # The details are those of the last experiment.
    return result._replace(figures=figures)
