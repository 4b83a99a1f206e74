"""Score controllers: lines per game with its 95 % interval, several side by side.

python scripts/evaluate_tetris.py dt20 runs/mine --board 10x10 --games 500
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from kernels.support import ranks
from kernels.support.files import check_writable, write_text
from tetris.commands.arguments import DEFAULT_SECONDS, add_option, print_scores, read_trials, score_parser
from tetris.commands.command_line import joined_ranks, one_line_errors, positive_int
from tetris.evaluation.scores import Limit, Measurement, Trial, measure
from tetris.game.decisions import Pieces, Step, play
from tetris.game.piece_stream import PieceStream
from tetris.play.devices import choose_device
from tetris.record.replay import FORMAT, STEPS_VERSION
from tetris.record.score import Score

DEFAULT_REPLAY_DECISIONS = 1000
MOST_REPLAY_DECISIONS = 1_000_000


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser, limit, output = score_parser(__doc__)
    add_option(limit, "--games", "N", "play until N games have ended", positive_int)
    text = "play exactly these pieces once: numbers 0..6 (IOTZSJL), separated by whitespace"
    add_option(limit, "--piece-sequence", "FILE", text, Path)
    text = "write every step of one controller, played by the Python engine on one board"
    add_option(output, "--replay", "OUT.json", text, Path)
    arguments = parser.parse_args(argv)
    if arguments.piece_sequence and arguments.pieces != parser.get_default("pieces"):
        parser.error("--piece-sequence names the pieces: expected no --pieces")
    if arguments.replay and arguments.piece_sequence and arguments.rule == "original":
        parser.error(
            "--replay records the piece after the last one by the original rule: expected no --piece-sequence"
        )
    if arguments.replay and len(arguments.controllers) > 1:
        parser.error(f"--replay records one controller, got {len(arguments.controllers)}")
    return arguments


def read_pieces(path: Path) -> list[int]:
    """Read pieces, 0 to 6, separated by whitespace."""
    words = path.read_text(encoding="utf-8", errors="replace").split()
    wrong = next((number for number, word in enumerate(words) if word not in {*"0123456"}), None)
    if wrong is not None or not words:
        got = "none" if wrong is None else f"{words[wrong]!r} as number {wrong + 1}"
        raise ValueError(f"{path}: expected pieces 0..6 separated by whitespace, got {got}")
    return [int(word) for word in words]


@joined_ranks()
def main(argv: Sequence[str] | None = None) -> int:
    """Score every controller and print the table; ranks share the work."""
    arguments = parse_arguments(argv)
    stepwise = bool(arguments.piece_sequence or arguments.replay)
    if stepwise and arguments.device not in ("auto", "python"):
        print("note: --piece-sequence and --replay play on the Python engine", file=sys.stderr)
    with one_line_errors():
        device = "python" if stepwise else choose_device(arguments.device)
        trials = read_trials(arguments, device, arguments.piece_sequence)
        sequence = read_pieces(arguments.piece_sequence) if arguments.piece_sequence else None
        if arguments.replay:
            check_writable(arguments.replay)

    decisions = len(sequence) if sequence else arguments.decisions
    limit = Limit(arguments.games, decisions, arguments.seconds)
    if limit == Limit():
        replay = Limit(decisions=DEFAULT_REPLAY_DECISIONS)
        limit = replay if arguments.replay else Limit(seconds=DEFAULT_SECONDS)
    measurements = []
    for trial in trials:
        if stepwise:
            pieces = PieceStream(trial.rules, trial.seed or 0, 0) if sequence is None else sequence
            measurements.append(play_steps(trial, pieces, limit, arguments.replay))
        else:
            measurements.append(measure(trial, limit))
    print_scores([each.to_dict() for each in measurements], arguments.json)
    return 0


def play_steps(trial: Trial, pieces: Pieces, limit: Limit, replay: Path | None) -> Measurement:
    """Play one stream with the reference implementation, and write every step into a file, if any."""
    most = MOST_REPLAY_DECISIONS if replay else sys.maxsize
    began = time.perf_counter()
    played: list[Step] = []
    score, seconds = Score(0, 0, 0), 0.0
    player = trial.controller.player(trial.rules, trial.lookahead)
    for after in islice(play(pieces, player, trial.rules), most):
        step = Step.of(after, player)
        played.append(step)
        score += Score(step.lines, int(step.game_over), 1)
        seconds = time.perf_counter() - began
        if limit.reached(score, seconds):
            break
    else:
        print(f"note: --replay ends at {most:,} decisions, the most that it records", file=sys.stderr)
    if replay and ranks.rank() == 0:
        steps = {
            "format": FORMAT,
            "version": STEPS_VERSION,
            "controller": trial.controller.to_dict(),
            "feature_names": list(trial.controller.names_on(trial.rules)),
            "rules": trial.rules.to_dict(),
            "pieces": trial.file or trial.rules.pieces,
            "seed": trial.seed,
            "stream": None if trial.seed is None else 0,
            "steps": [step.to_dict() for step in played],
        }
        with one_line_errors():
            write_text(replay, json.dumps(steps, allow_nan=False) + "\n")
    return Measurement(trial, score, seconds)
