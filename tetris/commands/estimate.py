"""Estimate lines per game of controllers that rarely lose, by importance splitting.

python scripts/estimate_tetris.py best dt20
python scripts/estimate_tetris.py runs/mine --board 10x20 --seconds 60

It takes less than a minute each on two cores; evaluate_tetris.py takes hours. The spread of many
estimates gives the interval. A score to be published is played instead: see docs/scores.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kernels.support.checks import check_integer
from tetris.commands.arguments import (
    add_controllers,
    add_device,
    add_game,
    add_json,
    print_scores,
    read_trials,
)
from tetris.commands.command_line import (
    Parser,
    fail,
    joined_ranks,
    one_line_errors,
    positive_int,
    positive_seconds,
)
from tetris.evaluation import estimates
from tetris.play.devices import NATIVE, choose_device
from tetris.play.splitting import MOST_STREAMS

DEFAULT_SECONDS = 10.0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...] CONTROLLER [CONTROLLER ...]")
    add_controllers(parser)
    game = add_game(parser)
    add_device(game, ("auto", *NATIVE))
    length = parser.add_argument_group("length, one of the first two")
    limit = length.add_mutually_exclusive_group()
    limit.add_argument(
        "--seconds",
        type=positive_seconds,
        metavar="S",
        help=f"at least S seconds per controller (default: {DEFAULT_SECONDS:g})",
    )
    limit.add_argument("--decisions", type=positive_int, metavar="N", help="at least N of each controller")
    length.add_argument(
        "--streams", type=positive_int, metavar="N", help="of each estimate, 2 to 8192 (default: 1024)"
    )
    add_json(parser.add_argument_group("output"))
    return parser.parse_args(argv)


@joined_ranks()
def main(argv: Sequence[str] | None = None) -> int:
    """Estimate every controller and print the table; ranks share the work."""
    arguments = parse_arguments(argv)
    streams = arguments.streams or estimates.STREAMS
    with one_line_errors():
        device = choose_device(arguments.device)
        if device not in NATIVE:
            raise ValueError("expected a compiler for the C++ engine: in Python an estimate takes hours")
        trials = read_trials(arguments, device)
        check_integer("--streams", streams, 2, MOST_STREAMS)
    seconds = arguments.seconds or (0.0 if arguments.decisions else DEFAULT_SECONDS)
    least = arguments.decisions or 0

    def enough(made: estimates.Estimate) -> bool:
        return made.seconds >= seconds and made.decisions >= least

    found = []
    for trial in trials:
        if (games := estimates.games_ended(trial)) > estimates.MOST_ENDS:
            fail(
                f"{trial.label} ends {games:,} games in {estimates.PLAYED:,} decisions on "
                f"{trial.rules.board}: evaluate scores it by them"
            )
        found.append(estimates.estimate(trial, enough, streams))
    print_scores([each.to_dict() for each in found], arguments.json)
    return 0
