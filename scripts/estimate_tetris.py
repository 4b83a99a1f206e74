"""Estimate lines per game of controllers that hardly ever lose, by importance splitting.

python scripts/estimate_tetris.py best dt20
python scripts/estimate_tetris.py runs/mine --board 10x20 --seconds 60

It takes less than a minute each on two cores where evaluate_tetris.py sees no game end in hours. Many
estimates are made, and their spread gives the interval. It is no substitute for games played to their end
where a score is to be published; docs/scores.md says what to expect of it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from _common import (
    Parser,
    choose_device,
    feature_label,
    one_line_errors,
    positive_int,
    positive_seconds,
    progress,
    run,
    table,
)
from _game_arguments import (
    add_board,
    add_controllers,
    add_device,
    add_pieces,
    add_rule,
    add_seed,
    game_rules,
    read_controllers,
)
from _markdown import lines
from _scoring import DEFAULT_SEED

from tetris import LinearController, Rules, rollout, split_rollout
from tetris.splitting import MOST_STREAMS, SETTLING, lines_per_game

DEVICES = ("auto", "cpu", "cuda")
"""The engines: in Python it would take hours."""

ESTIMATES = 16
"""Independent estimates that are made side by side, the least there are."""

STREAMS = 1024
"""Streams of an estimate: more than it takes on 10x20, see `split_rollout`."""

DECISIONS = SETTLING + 1000
"""On each of them."""

MOST_ENDS = 2
"""Games that may end in so many decisions without splitting. Who loses more often needs no estimate: see
`split_rollout`."""

DEFAULT_SECONDS = 10.0
METHOD = "mean of importance splitting estimates, Student's t interval of their rate of ends"


@dataclass(frozen=True)
class Estimate:
    """What a controller was estimated to be.

    Attributes:
        label: What to call the controller.
        controller: Who played.
        rules: By which rules.
        rates: Ends of games a decision, independent estimates, at least two.
        decisions: Decisions of all of them.
        seconds: How long they took.
    """

    label: str
    controller: LinearController
    rules: Rules
    rates: Sequence[float]
    decisions: int
    seconds: float

    @property
    def lines_per_game(self) -> float | None:
        """The estimate; None where no game ended at all."""
        rate = statistics.fmean(self.rates)
        return lines_per_game(self.rules, rate) if rate else None

    @property
    def ci95(self) -> tuple[float, float | None]:
        """Its 95 % interval; the upper end is None where the rate may as well be zero."""
        rate, count = statistics.fmean(self.rates), len(self.rates)
        if not rate:
            return 0.0, None
        margin = student_t(count - 1) * statistics.stdev(self.rates) / math.sqrt(count)
        high = lines_per_game(self.rules, rate - margin) if rate > margin else None
        return lines_per_game(self.rules, rate + margin), high

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "controller": self.label,
            "features": self.controller.features,
            "weights": list(self.controller.weights),
            "board": self.rules.board,
            "rule": self.rules.rule,
            "pieces": self.rules.pieces,
            "estimator": METHOD,
            "lines_per_game": self.lines_per_game,
            "ci95": list(self.ci95),
            "estimates": len(self.rates),
            "decisions": self.decisions,
            "seconds": self.seconds,
        }


def student_t(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's distribution, to a thousandth from fifteen degrees on.

    The expansion in Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    z = statistics.NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def estimate(
    label: str, controller: LinearController, rules: Rules, device: str, arguments: argparse.Namespace
) -> Estimate:
    """Estimate one controller as the arguments say, in whole batches.

    Raises:
        ValueError: If it loses so often that it can be played instead.
    """
    seed = DEFAULT_SEED if arguments.seed is None else arguments.seed
    seconds = arguments.seconds or (0.0 if arguments.decisions else DEFAULT_SECONDS)
    features = controller.features
    played = rollout([controller.weights], rules, STREAMS, 2 * DECISIONS, seed, device, features=features)
    if int(played.games) > MOST_ENDS:
        raise ValueError(
            f"{label} ends {int(played.games):,} games in {int(played.decisions):,} decisions on "
            f"{rules.board}: scripts/evaluate_tetris.py scores it by them"
        )
    weights = torch.tensor([controller.weights] * ESTIMATES)
    began = time.perf_counter()
    rates: list[float] = []
    made, passed = 0, 0.0
    with progress(desc=label, unit=" estimates", leave=False) as bar:
        while not made or passed < seconds or made < (arguments.decisions or 0):
            found = split_rollout(
                weights,
                rules,
                arguments.streams,
                DECISIONS,
                seed,
                device,
                features=features,
                share_streams=False,
                first_stream=len(rates) * arguments.streams,
            )
            rates += found.rate.tolist()
            made += int(found.decisions.sum())
            passed = time.perf_counter() - began
            bar.update(ESTIMATES)
    return Estimate(label, controller, rules, rates, made, passed)


def estimate_table(estimates: Sequence[Estimate]) -> str:
    """Return the estimates side by side."""
    header = ["controller", "features", "lines/game", "95 % interval", "estimates", "decisions", "seconds"]
    rows = []
    for each in estimates:
        low, high = each.ci95
        interval = f"> {lines(low)}" if high is None else f"{lines(low)} - {lines(high)}"
        counts = f"{len(each.rates)}", f"{each.decisions:,}", f"{each.seconds:.1f}"
        label = feature_label(each.controller.features)
        rows.append([each.label, label, lines(each.lines_per_game), interval, *counts])
    return table(header, rows)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...] CONTROLLER [CONTROLLER ...]")
    add_controllers(parser)
    game = parser.add_argument_group("game")
    for add in (add_board, add_rule, add_pieces, add_seed):
        add(game)
    add_device(game, DEVICES)
    length = parser.add_argument_group("length, one of the first two")
    limit = length.add_mutually_exclusive_group()
    limit.add_argument(
        "--seconds",
        type=positive_seconds,
        metavar="S",
        help=f"at least S seconds a controller, in batches of {ESTIMATES} (default: {DEFAULT_SECONDS:g})",
    )
    limit.add_argument("--decisions", type=positive_int, metavar="N", help="at least N of each controller")
    length.add_argument(
        "--streams",
        type=positive_int,
        default=STREAMS,
        metavar="N",
        help="of each estimate, 2 to 8192 (default: %(default)d)",
    )
    parser.add_argument_group("output").add_argument(
        "--json", action="store_true", help="print one object a controller, a list, to stdout"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Estimate every controller and print the table."""
    arguments = parse_arguments(argv)
    with one_line_errors():
        rules = game_rules(arguments)
        controllers = read_controllers(arguments.controllers, rules)
        device = choose_device(arguments.device)
        if device not in DEVICES:
            raise ValueError("expected a compiler for the C++ engine: in Python an estimate takes hours")
        if not 2 <= arguments.streams <= MOST_STREAMS:
            raise ValueError(f"expected --streams to be from 2 to {MOST_STREAMS}, got {arguments.streams}")
    estimates = []
    for label, controller in controllers:
        with one_line_errors():
            estimates.append(estimate(label, controller, rules, device, arguments))
    if arguments.json:
        print(json.dumps([each.to_dict() for each in estimates], indent=2, allow_nan=False))
    else:
        print(f"board {rules.board}, {rules.rule} rule, pieces {rules.pieces}, engine {device}")
        print(estimate_table(estimates))
    return 0


if __name__ == "__main__":
    run(main)
