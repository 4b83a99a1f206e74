"""Repeat measurements of the literature on Tetris controllers.

python scripts/measure reproduce published --quick
python scripts/measure noisy_ce_bcts_10x10 --json noisy_ce_bcts_10x10.json

Published controllers play by the published rule: on a GPU to 0.5 % and 5 % (95 % interval, to
either side), on a CPU to 3 % on 10x10, and on 10x20 for a minute. The searches on 10x20 are for
a GPU.

In noisy cross-entropy searches the fitness of a candidate is the lines of one game: Szita &
Lőrincz, Learning Tetris Using the Noisy Cross-Entropy Method (2006), with the `bertsekas`
features; Thiery & Scherrer, Improvements on Learning Tetris with Cross Entropy (2009), with
better features, here `bcts`. As in the papers no two games have the same pieces: in generation
t search s has the 130 streams from t * 2^32 + 130 s on, and its mean plays on the first 30; the
last means have 30 streams each from t * 2^32 + 2^31 + 30 s on. So a search is a function of its
seed and noise only. All searches play in one rollout. A game that does not end is cut off after
a limit of decisions, and counts with its lines until then.
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
    """The extent of an experiment.

    Attributes:
        seeds: Searches with each noise schedule, with the seeds from 1 on.
        limit: Decisions after which a game is cut off.
        score_decisions: Decisions that score the last mean of a search, in streams of games.
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
"""How far the interval of a score may reach, by board, as a share of the score."""

BOARDS = ("10x10", "10x20")
CPU_SCORE_DECISIONS = 20_000_000  # The most that score a search on a CPU.
QUICK_SEEDS = 3
SECONDS = 60.0
QUICK_SECONDS = 3.0

_LINES_PER_DECISION = 0.4  # A piece has four cells, a line ten.
_UNKNOWN = 4000.0  # Lines per game on 10x10 if no paper has a figure.
_SPARE = 1.25  # For controllers that are better than in their papers, and for chance.
_ROUND = 10**6

BY_GENERATION = ("mean_lines", "mean_games_cut", "candidate_games_cut")
"""Lines of the mean before each generation; games of the mean and of candidates cut off."""


class Search(NamedTuple):
    """A search and its learning curves, by the names of `BY_GENERATION`."""

    noise: str
    seed: int
    optimizer: CrossEntropyMethod
    curves: dict[str, list[float]]


def make_searches(plan: Plan) -> list[Search]:
    """Return the searches of an experiment before their first generation.

    There is one cross-entropy search for every noise schedule and seed. The first searches are
    those of all schedules with seed 1, then those with seed 2, and so on. Every search begins
    with weights around 0, and has empty learning curves.
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

    The mean of each search plays `MEAN_GAMES` games, and each of its candidates plays one, all
    in one rollout. After the last generation only the means play.

    Returns:
        The number of decisions of all games.
    """
    is_last = generation == plan.generations
    # Streams are numbered sequences of pieces. No two players ever play the same one.
    first_stream = generation * _GENERATION_STREAMS
    # The players of a search are its mean, as often as that plays, then its candidates.
    players = [search.optimizer.mean.expand(MEAN_GAMES, -1) for search in searches]
    if is_last:
        first_stream += _LAST_STREAMS
    else:
        candidates = [search.optimizer.ask() for search in searches]
        players = [torch.cat(pair) for pair in zip(players, candidates, strict=True)]
    lines, games, decisions = _play_once(plan, device, players, first_stream)
    # Row s of lines and games has the players of search s.
    for number, search in enumerate(searches):
        curves = search.curves
        mean_lines = float(lines[number, :MEAN_GAMES].double().mean())
        is_cut = games[number] == 0  # The player's game had not ended at the limit.
        curves["mean_lines"].append(round(mean_lines, 2))
        curves["mean_games_cut"].append(int(is_cut[:MEAN_GAMES].sum()))
        if not is_last:
            curves["candidate_games_cut"].append(int(is_cut[MEAN_GAMES:].sum()))
            search.optimizer.tell(candidates[number], lines[number, MEAN_GAMES:])
    return decisions


def run_experiment(plan: Plan, device: str) -> dict[str, Any]:
    """Run cross-entropy searches side by side; return their learning curves and scores.

    Except for the seconds the result is a function of the plan, because the searches are on the
    CPU, and games are the same on every device.
    """
    start_time = time.perf_counter()
    decisions = 0
    searches = make_searches(plan)
    # After the last generation the means play once more.
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
    """Return the results of a search: its curves, and the weights and the score of its mean.

    The mean is that after the last generation. Its score is measured as for published
    controllers, so no game is cut off after a limit.
    """
    weights = search.optimizer.mean.tolist()
    controller = LinearController(plan.features, tuple(weights), plan.rules)
    trial = Trial("mean", controller, plan.rules, device)
    score = measure_score(trial, Limit(decisions=plan.score_decisions)).score
    counts = asdict(score)  # The lines per game and the interval are computed from them.
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
    """Play one game of every player of every search, and return the results.

    A game that does not end is cut off after a limit of decisions. If several processes run the
    experiment together, each plays a share of the games, and all get all results.

    Args:
        plan: The features, the rules and the limit.
        device: The device of the rollout.
        players: The weights of the players of each search, shape (players, features).
        first_stream: The number of the first player's sequence of pieces. The following players
            have the following numbers, so that no two play the same pieces.

    Returns:
        Two tensors of shape (searches, players), the lines of each player and the games that
        ended, 0 or 1; and the number of decisions of all players.
    """
    weights = torch.cat(players)
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
    all_counts = ranks.gather(counts, len(weights))
    lines, games, decisions = all_counts.unbind(1)
    searches = len(players)
    return lines.reshape(searches, -1), games.reshape(searches, -1), int(decisions.sum())


def decisions_for(controller: str, board: str, precision: float) -> int:
    """Return the decisions for a 95 % interval within a share of the score.

    It holds with a probability of .999 for a published controller that is as good as in its
    paper, or a seventh better. The number does not depend on the games, so no stopping rule
    biases the score.
    """
    paper = PUBLISHED_SCORES[controller].get(board)
    lines = _UNKNOWN if paper is None else (paper.low + paper.high) / 2
    games = (1.96 * (1 + precision) / precision) ** 2
    decisions = games * lines / _LINES_PER_DECISION * _SPARE
    return math.ceil(decisions / _ROUND) * _ROUND


def published(device: str, quick: bool) -> Measured:
    """Measure the scores of the published controllers on both boards, in lines per game.

    On the boards for which the device is fast enough a controller plays as many decisions as a
    precision of its score needs, and on others for some seconds. If no game ends, only a lower
    bound of the score is known. The name of its figure then ends with "_at_least".

    Args:
        device: The device that plays.
        quick: Whether to play less: to the precision of a CPU, and for fewer seconds.
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
            if measurement["lines_per_game"] is None:
                figure += "_at_least"
            figures[figure] = least_lines(measurement)
    data = {"precision": precision_by_board, "seconds": seconds, "measurements": measurements}
    return Measured(figures, data)


def noisy_ce(name: str, device: str, quick: bool) -> Measured:
    """Run an experiment of noisy cross-entropy searches by its name.

    There are fewer searches if ``quick``, and shorter scores on a CPU.

    Returns:
        For each noise schedule the median score of its searches as a figure; the details of all
        searches; and their learning curves as a series, with one record for each search.
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
        schedule = noise.partition(":")[0]  # "linear" of "linear:5.0,10.0"
        figure = f"reproduce.{name}.{schedule}.lines_per_game_median"
        figures[figure] = median(map(least_lines, scores))
    # Move the curves from the details to the series, which is a file of its own.
    series = []
    for search in searches:
        curves = {key: search.pop(key) for key in BY_GENERATION}
        series.append({"noise": search["noise"], "seed": search["seed"], **curves})
    return Measured(figures, experiment, {"": series})


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Run experiments by name; return the figures of all, and the details of the last one.

    Without names all experiments run except the searches on the board 10x20, which take a GPU
    for hours.
    """
    names = arguments.experiments
    if not names:
        names = [name for name in ("published", *PLANS) if not name.endswith("10x20")]
    if arguments.json and len(names) > 1:
        fail(f"expected one experiment with --json, got {len(names)}")
    # Without a compiler the implementation in Python would play for weeks.
    with one_line_errors():
        find_compiler()
    figures: dict[str, float] = {}
    for name in names:
        if name == "published":
            result = published(device, arguments.quick)
        else:
            result = noisy_ce(name, device, arguments.quick)
        figures |= result.figures
    return result._replace(figures=figures)
