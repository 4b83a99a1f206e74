"""Estimate lines per game of controllers that rarely lose, by importance splitting.

python -m tetris estimate best dt20
python -m tetris estimate runs/mine --board 10x20 --seconds 60

An estimate takes less than a minute on two cores, where python -m tetris evaluate takes hours.
The spread of many estimates gives the interval. To publish a score, measure it with evaluate:
see docs/scores.md.
"""

import argparse

from tetris.commands.arguments import (
    DEFAULT_SECONDS,
    add_option,
    print_scores,
    read_trials,
    score_parser,
)
from tetris.commands.command_line import fail, joined_ranks, one_line_errors, up_to
from tetris.evaluation import estimates
from tetris.play.devices import NATIVE
from tetris.play.splitting import MOST_STREAMS
from tetris.training.settings import LEAST_SPLIT_STREAMS


def parse_arguments() -> argparse.Namespace:
    """Return the arguments of the command line; on an error, print one line and exit."""
    parser, _ = score_parser(__doc__, ("auto", *NATIVE))
    range_text = f"{LEAST_SPLIT_STREAMS} to {MOST_STREAMS}"
    text = f"streams of pieces per estimate, {range_text}: with fewer it is too low"
    read = up_to(MOST_STREAMS, low=LEAST_SPLIT_STREAMS)
    add_option(parser, "--streams", "N", text, read, default=estimates.STREAMS)
    return parser.parse_args()


@joined_ranks()
def main() -> int:
    """Estimate the lines per game of every controller, and print a table of the estimates.

    The estimates use importance splitting. If a controller rarely loses, this method needs far
    fewer decisions than playing games to their end. If ``torchrun`` started several processes,
    they share the work.

    Returns:
        The exit status.
    """
    arguments = parse_arguments()
    with one_line_errors():
        trials = read_trials(arguments)
        # NATIVE has the names of the engines in C++ and CUDA.
        if any(trial.device not in NATIVE for trial in trials):
            raise ValueError(
                "expected a compiler for the C++ engine: in Python an estimate takes hours"
            )
    # A user can set only one of the two limits. The other one is 0, which is always reached.
    seconds = arguments.seconds or 0.0
    decisions = arguments.decisions or 0
    if not seconds and not decisions:
        seconds = DEFAULT_SECONDS

    def is_enough(estimate: estimates.Estimate) -> bool:
        return estimate.seconds >= seconds and estimate.decisions >= decisions

    scores = []
    for trial in trials:
        # First play without splitting. If many games end, the estimate has no advantage.
        games = estimates.games_ended(trial)
        if games > estimates.MOST_ENDS:
            fail(
                f"{trial.label} ends {games:,} games in {estimates.PLAYED:,} decisions on "
                f"{trial.rules.board}: score it with python -m tetris evaluate instead"
            )
        scores.append(estimates.estimate(trial, is_enough, arguments.streams).to_dict())
    print_scores(scores, arguments.json)
    return 0
