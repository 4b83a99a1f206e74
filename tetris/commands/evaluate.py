"""Score controllers: lines per game with its 95 % interval, several side by side.

python -m tetris evaluate dt20 runs/mine --board 10x10 --games 500
"""

from tetris.commands.arguments import (
    DEFAULT_SECONDS,
    add_option,
    print_scores,
    read_trials,
    score_parser,
)
from tetris.commands.command_line import joined_ranks, one_line_errors, positive_int
from tetris.evaluation.measurement import Limit, measure


@joined_ranks()
def main() -> int:
    """Score every controller by playing games, print a table, and return the exit status.

    If ``torchrun`` started several processes, they share the work.
    """
    parser, limits = score_parser(__doc__)
    add_option(limits, "--games", "N", "play until N games have ended", positive_int)
    arguments = parser.parse_args()
    with one_line_errors():
        trials = read_trials(arguments)
    limit = Limit(arguments.games, arguments.decisions, arguments.seconds)
    if limit == Limit():
        limit = Limit(seconds=DEFAULT_SECONDS)
    print_scores([measure(trial, limit).to_dict() for trial in trials], arguments.json)
    return 0
