"""Measure a controller that is trained with the next piece known, beside others that know it, too.

python scripts/measure two_pieces --device cuda --seconds 170 --json two_pieces.json

Trained in a process of its own on 10x6, 10x8 and 10x10. Scores are estimated by importance splitting: with
the next piece known, games on 10x10 take millions of decisions.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from measure.cli import Options, measurement
from measure.processes import flags, learned, python
from measure.provenance import Measured
from tetris import LinearController, Rules, published
from tetris.commands.command_line import positive_seconds
from tetris.evaluation.estimates import ESTIMATES, estimate
from tetris.training.curriculum import parse_curriculum

CURRICULA = {
    "cuda": "10x6:10:1000,10x8:20:500:split,10x10:80:1000:split",
    "cpu": "10x6:12:500,10x8:40:500:split,10x10:40:500:split",
}
SETTINGS: dict[str, dict[str, object]] = {
    "cuda": {"features": "dt_surface", "population": 128, "elites": 13, "streams": 256},
    "cpu": {"features": "dt_surface", "population": 64, "elites": 8, "streams": 64},
}
BOARDS = {"10x10": 6, "10x20": 2}
"""Boards, and the batches of `tetris.evaluation.estimates.ESTIMATES` estimates on each."""

OTHERS = ("dt20", "best")  # made for one known piece


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return lines a game of the learned controller and of others, all with the next piece known."""
    device = "cuda" if device == "cuda" else "cpu"
    curriculum = CURRICULA[device]
    settings = {**SETTINGS[device], "board": "10x10", "pieces-known": 2, "curriculum": curriculum, "seed": 1}
    limit = {"time-limit": arguments.seconds} if arguments.seconds else {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = flags({**settings, **limit, "device": device, "score-decisions": 0, "out": out})
        python("scripts/train_tetris.py", *words)
        found = learned(out)
    told = found["provenance"]
    controllers = {"learned": LinearController.from_dict(found)}
    controllers |= {name: published(name) for name in OTHERS}
    scores = [
        _estimated(name, controller, board, batches, device)
        for board, batches in BOARDS.items()
        for name, controller in controllers.items()
    ]
    lines = {f"{each['board']}.{each['controller']}": each["lines_per_game"] for each in scores}
    figures = {f"two_pieces.{key}.estimated": value for key, value in lines.items() if value is not None}
    figures["two_pieces.training_seconds"] = told["seconds"]
    figures["two_pieces.training_decisions"] = told["decisions"]
    if lines["10x10.learned"] is not None and lines["10x10.dt20"] is not None:
        figures["two_pieces.10x10.times_dt20"] = lines["10x10.learned"] / lines["10x10.dt20"]
    generations = sum(stage.generations for stage in parse_curriculum(curriculum))
    data = {"settings": settings, "generation": told["generation"], "generations": generations}
    return figures, {**data, "weights": found["weights"], "estimates": scores}, {}


def _estimated(
    name: str, controller: LinearController, board: str, batches: int, device: str
) -> dict[str, Any]:
    rules, count = Rules(*Rules.parse_board(board)), batches * ESTIMATES
    return estimate(
        *(name, controller, rules, device, lambda found: len(found.rates) >= count), pieces_known=2
    ).to_dict()


OPTIONS: Options = {
    "--seconds": {"type": positive_seconds, "metavar": "S", "help": "of training (default: all generations)"}
}
main = measurement(measure, __doc__, OPTIONS)
