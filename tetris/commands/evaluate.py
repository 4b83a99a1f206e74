"""Score controllers: lines per game with its 95 % interval, several side by side.

python scripts/evaluate_tetris.py dt20 runs/mine --board 10x10 --games 500
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from kernels.support.files import check_writable, read_bytes, write_text
from tetris.commands.arguments import (
    Group,
    add_controllers,
    add_device,
    add_game,
    add_json,
    add_pieces,
    print_scores,
    read_trials,
)
from tetris.commands.command_line import Parser, joined_ranks, one_line_errors, positive_int, positive_seconds
from tetris.play.devices import choose_device

DEFAULT_SECONDS = 10.0
DEFAULT_REPLAY_DECISIONS = 1000
MOST_REPLAY_DECISIONS = 1_000_000
_MOST_BYTES = 1 << 28  # of a piece sequence


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...] CONTROLLER [CONTROLLER ...]")
    add_controllers(parser)
    game = add_game(parser, _add_source)
    add_device(game)
    limit = parser.add_argument_group("length, one of").add_mutually_exclusive_group()
    limit.add_argument("--games", type=positive_int, metavar="N", help="play until N games have ended")
    limit.add_argument(
        "--decisions",
        type=positive_int,
        metavar="N",
        help="play N decisions, rounded up to as many on each stream",
    )
    limit.add_argument(
        "--seconds",
        type=positive_seconds,
        metavar="S",
        help=f"play S seconds per controller (default: {DEFAULT_SECONDS:g})",
    )
    output = parser.add_argument_group("output")
    add_json(output)
    output.add_argument(
        "--replay",
        type=Path,
        metavar="OUT.json",
        help="write every step of one controller, played by the Python engine on one board",
    )
    arguments = parser.parse_args(argv)
    if arguments.piece_sequence and (arguments.games or arguments.decisions or arguments.seconds):
        parser.error("--piece-sequence plays its pieces once: expected no --games, --decisions or --seconds")
    if arguments.replay and arguments.piece_sequence and arguments.rule == "original":
        parser.error(
            "--replay records the piece after the last one by the original rule: expected no --piece-sequence"
        )
    if arguments.replay and len(arguments.controllers) > 1:
        parser.error(f"--replay records one controller, got {len(arguments.controllers)}")
    if arguments.replay and (arguments.decisions or 0) > MOST_REPLAY_DECISIONS:
        parser.error(
            f"--replay records at most {MOST_REPLAY_DECISIONS:,} decisions, got {arguments.decisions:,}"
        )
    return arguments


def _add_source(group: Group) -> None:
    source = group.add_mutually_exclusive_group()
    add_pieces(source)
    source.add_argument(
        "--piece-sequence",
        type=Path,
        metavar="FILE",
        help="play exactly these pieces once: numbers 0..6 (IOTZSJL), separated by whitespace",
    )


def read_pieces(path: Path) -> list[int]:
    """Read pieces, 0 to 6, separated by whitespace."""
    try:
        words = read_bytes(path, _MOST_BYTES).decode(errors="replace").split()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    for position, word in enumerate(words, start=1):
        if word not in {"0", "1", "2", "3", "4", "5", "6"}:
            raise ValueError(
                f"{path}: expected pieces 0..6 separated by whitespace, got {word!r} as number {position}"
            )
    if not words:
        raise ValueError(f"{path}: expected pieces 0..6 separated by whitespace, got none")
    return [int(word) for word in words]


def main(argv: Sequence[str] | None = None) -> int:
    """Score every controller and print the table."""
    return score(parse_arguments(argv))


@joined_ranks()
def score(arguments: argparse.Namespace) -> int:
    """Score every controller and print the table; ranks share the work."""
    # torch and the engines: not for --help
    from kernels.support import ranks
    from tetris.evaluation.scores import Limit, measure, progress_bar
    from tetris.evaluation.step_replay import play_steps, step_replay
    from tetris.game.decisions import Step
    from tetris.game.piece_stream import PieceStream

    stepwise = bool(arguments.piece_sequence or arguments.replay)
    if stepwise and arguments.device not in ("auto", "python"):
        print("note: --piece-sequence and --replay play on the Python engine", file=sys.stderr)
    with one_line_errors():
        device = "python" if stepwise else choose_device(arguments.device)
        trials = read_trials(arguments, device, arguments.piece_sequence)
        sequence = read_pieces(arguments.piece_sequence) if arguments.piece_sequence else None
        if arguments.replay:
            check_writable(arguments.replay)

    if sequence is not None:
        limit = Limit(decisions=len(sequence))
    elif arguments.games or arguments.decisions or arguments.seconds:
        limit = Limit(arguments.games, arguments.decisions, arguments.seconds)
    else:
        limit = (
            Limit(decisions=DEFAULT_REPLAY_DECISIONS) if arguments.replay else Limit(seconds=DEFAULT_SECONDS)
        )
    measurements = []
    for trial in trials:
        played: list[Step] = []
        if stepwise:
            pieces = PieceStream(trial.rules, trial.seed or 0, 0) if sequence is None else sequence
            most = MOST_REPLAY_DECISIONS if arguments.replay else sys.maxsize
            played, measurement = play_steps(trial, pieces, limit, most)
            if len(played) == most and not limit.reached(measurement.score, measurement.seconds):
                print(f"note: --replay ends at {most:,} decisions, the most that it records", file=sys.stderr)
        else:
            with progress_bar(trial.label, limit) as progress:
                measurement = measure(trial, limit, progress)
        measurements.append(measurement)
        if arguments.replay and ranks.rank() == 0:
            with one_line_errors():
                write_text(arguments.replay, json.dumps(step_replay(trial, played), allow_nan=False) + "\n")

    print_scores([each.to_dict() for each in measurements], arguments.json)
    return 0
