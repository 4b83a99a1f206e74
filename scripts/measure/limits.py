"""Measure perfect play on small boards, and how much of it linear controllers reach.

python scripts/measure limits --device cpu --json limits.json
python scripts/measure limits --device cuda --boards 5x6:1 4x8:1 --json limits.json

Every board is solved by value iteration, with one piece known or with two (WxH:2); games of the solution
check it. Then games of DT-20 and of a controller that the preset quick learns on that board with all its
features, all from the same pieces, by the C++ engine. Training takes a fixed number of generations, and no
choice is made. On a GPU boards of 32 cells need 120 GB of its memory.
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


def learned(board: str) -> LinearController:
    """Return the controller that the preset quick learns on a board."""
    with tempfile.TemporaryDirectory() as folder:
        curriculum = f"{board}:{GENERATIONS}:{DECISIONS}"
        return train(
            "quick", seed=SEED, out=Path(folder) / "run", device="cpu", board=board, curriculum=curriculum
        )


def score(controller: LinearController, rules: Rules) -> tuple[float, float]:
    """Return lines a game of a controller and the standard error."""
    weights = torch.tensor([controller.weights])
    names = ",".join(controller.names_on(rules))
    played = rollout(
        weights, rules, STREAMS, 1 << 40, SEED, features=names, games_per_stream=GAMES // STREAMS
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
        del solution, played
        if f"limits.{board}.dt20.lines_per_game" not in figures:
            controllers = {"dt20": published("dt20"), "learned": learned(board)}
            data[f"learned.{board}"] = controllers["learned"].to_dict()
            for name, controller in controllers.items():
                found = score(controller, rules)
                figures[f"limits.{board}.{name}.lines_per_game"], error = found
                figures[f"limits.{board}.{name}.error"] = error
    return figures, data, {}


OPTIONS: Options = {
    "--boards": {"nargs": "+", "metavar": "WxH:KNOWN", "help": "boards, and how many pieces are known"}
}
main = measurement(measure, __doc__, OPTIONS)
