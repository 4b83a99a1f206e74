"""Play one controller with MDPTetris and with this project's C++ engine, in one run on one machine.

python scripts/measure mdptetris ~/mdptetris

The folder is a built copy of github.com/brunoscherrer/mdptetris. Both play BCTS on 10x10, one core each, in
alternation; speeds are decisions in a second of processor time. MDPTetris prints the lines of each game: a
line takes 2.5 pieces, and a game ends with a board that is about half full.
"""

from __future__ import annotations

import argparse
import re
import resource
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import torch

from measure.provenance import Measured
from tetris import Rollout, Rules, Score, published
from tetris.commands.command_line import one_line_errors

STREAMS, SEED, WARM_UP = 64, 12345, 1000
BOARD = "10x10"
_PIECES_A_LINE = 2.5  # four cells a piece, ten a line
_LEFT = 12.5  # pieces on a board that is half full


def play_theirs(folder: Path, games: int) -> tuple[list[int], float]:
    """Return the lines of games that MDPTetris plays, and the seconds of processor time they take."""
    program = folder / "src" / "mdptetris_play_games"
    if not program.is_file():
        raise ValueError(f"expected a built copy of MDPTetris in {folder}, found no {program}")
    with tempfile.TemporaryDirectory() as name:
        words = ("features/record_du.dat", games, *BOARD.split("x"), Path(name) / "statistics")
        command = [str(program.resolve()), *map(str, words)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, cwd=folder / "data", capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    scores = next((line for line in done.stdout.splitlines() if line[:1].isdigit()), "")
    lines = [int(word) for word in scores.split()]
    if done.returncode or len(lines) != games:
        raise ValueError(f"expected {games} scores of {program}, got {done.stdout}{done.stderr}")
    return lines, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return both speeds, played in alternation."""
    with one_line_errors():
        play_theirs(arguments.folder, 1)
        makefile = (arguments.folder / "src" / "Makefile").read_text(errors="replace")
    cflags = re.search(r"^CFLAGS =(.*)", makefile, re.MULTILINE)
    controller = published("bcts")
    torch.set_num_threads(1)
    weights, rules = torch.tensor([controller.weights]), Rules(*Rules.parse_board(BOARD))
    games = Rollout(weights, rules, STREAMS, SEED, "cpu", features=controller.features)
    before = games.advance(WARM_UP)
    decisions, their_lines = WARM_UP, list[int]()
    speeds: dict[str, list[float]] = {"mdptetris": [], "ours": []}
    for _ in range(arguments.rounds):
        lines, seconds = play_theirs(arguments.folder, arguments.games)
        their_lines += lines
        speeds["mdptetris"].append((_PIECES_A_LINE * sum(lines) + _LEFT * len(lines)) / seconds)
        began = time.process_time()
        after = games.advance(decisions)
        speeds["ours"].append(decisions * STREAMS / (time.process_time() - began))
        decisions = max(1, round(speeds["ours"][-1] * seconds / STREAMS))  # the next round takes as long
    scores = {
        "mdptetris": Score(sum(their_lines), len(their_lines), 0),
        "ours": Score(int(after.lines[0] - before.lines[0]), int(after.games[0] - before.games[0]), 0),
    }
    median = {name: statistics.median(values) for name, values in speeds.items()}
    figure = "bcts.10x10.decisions_per_second_per_core"
    figures = {
        f"mdptetris.{figure}": median["mdptetris"],
        f"mdptetris.ours.{figure}": median["ours"],
        "mdptetris.speedup": median["ours"] / median["mdptetris"],
    }
    names = ("lines_per_game", "ci95", "games")
    data = {
        "clock": "processor time",
        "cflags": cflags[1].strip() if cflags else "unknown",
        "ranges": {name: [min(values), max(values)] for name, values in speeds.items()},
        "scores": {of: {name: getattr(each, name) for name in names} for of, each in scores.items()},
    }
    return Measured(figures, data)
