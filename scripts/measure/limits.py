"""Measure perfect play on small boards, and how much of it linear controllers reach.

python scripts/measure limits --device cpu --json limits.json
python scripts/measure limits --device cuda --boards 5x6:1 4x8:1 --json limits.json

Every board is solved by value iteration, with one piece known or with two (WxH:2); games of the solution
check it. Then games of DT-20 and of a controller that the preset quick learns on that board with all its
features, knowing as many pieces, all from the same pieces. Training takes a fixed number of generations, and
no choice is made. On a GPU boards of 32 cells need 120 GB of its memory.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path
from typing import Any

import torch

from measure.cli import Options, measurement
from measure.provenance import Measured
from tetris import LinearController, Rules, published
from tetris.rollouts import rollout
from tetris.solver import solve
from tetris.training import train

BOARDS = {
    "cpu": (
        "4x4:1",
        "4x5:1",
        "4x6:1",
        "5x4:1",
        "5x5:1",
        "6x4:1",
        "4x7:1",
        "4x4:2",
        "4x5:2",
        "4x6:2",
        "5x5:2",
    ),
    "cuda": ("5x5:1", "4x7:1", "6x5:1", "5x6:1", "5x5:2"),
}
GAMES, STREAMS, SEED = 1_000_000, 10_000, 1
GENERATIONS, DECISIONS = 20, 400


def learned(board: str, known: int) -> LinearController:
    """Return the controller that the preset quick learns on a board, with so many pieces known."""
    with tempfile.TemporaryDirectory() as folder:
        return train(
            "quick",
            seed=SEED,
            out=Path(folder) / "run",
            device="cpu",
            board=board,
            curriculum=f"{board}:{GENERATIONS}:{DECISIONS}",
            pieces_known=known,
        )


def score(controller: LinearController, rules: Rules, known: int, device: str) -> tuple[float, float]:
    """Return lines a game of a controller and the standard error."""
    weights = torch.tensor([controller.weights])
    names = ",".join(controller.names_on(rules))
    played = rollout(
        *(weights, rules, STREAMS, 1 << 40, SEED, device),
        features=names,
        games_per_stream=GAMES // STREAMS,
        pieces_known=known,
    )
    lines, games = int(played.lines[0]), int(played.games[0])
    return lines / games, lines / games / math.sqrt(games)  # the length of a game is nearly exponential


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return lines a game of perfect play and of controllers, and what solving took."""
    figures: dict[str, float] = {}
    data: dict[str, Any] = {"games": GAMES, "seed": SEED}
    for text in arguments.boards or BOARDS[device]:
        board, _, known = text.partition(":")
        rules = Rules(*Rules.parse_board(board))
        solution = solve(rules, int(known or 1), device)
        played = solution.play(GAMES, SEED).double()
        key = f"limits.{board}.known{solution.pieces_known}"
        figures |= {
            f"{key}.lines_per_game": solution.lines_per_game,
            f"{key}.error": solution.error,
            f"{key}.seconds": solution.seconds,
            f"{key}.boards": solution.boards,
            f"{key}.sweeps": solution.sweeps,
            f"{key}.played": float(played.mean()),
            f"{key}.played_error": float(played.std()) / math.sqrt(GAMES),
        }
        print(f"{text}: {solution.lines_per_game:.6g} in {solution.seconds:.1f} s", flush=True)
        pieces_known = solution.pieces_known
        del solution, played
        controllers = {"dt20": published("dt20"), "learned": learned(board, pieces_known)}
        data[f"learned.{text}"] = controllers["learned"].to_dict()
        for name, controller in controllers.items():
            of = f"limits.{board}.{name}" + ("" if pieces_known == 1 else "_known2")
            lines, error = score(controller, rules, pieces_known, device)
            figures |= {f"{of}.lines_per_game": lines, f"{of}.error": error}
    return figures, data, {}


OPTIONS: Options = {
    "--boards": {"nargs": "+", "metavar": "WxH:KNOWN", "help": "boards, and how many pieces are known"}
}
main = measurement(measure, __doc__, OPTIONS)
