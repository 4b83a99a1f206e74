"""Play one controller with MDPTetris and with this project's C++ engine, in one run on one machine.

python scripts/measure/compare_mdptetris.py ~/mdptetris

The folder is a built copy of github.com/brunoscherrer/mdptetris (it needs GSL and GLUT to link; nothing of it
comes with this project). Both play BCTS (their features/record_du.dat) on 10x10, one core each, in
alternation. Speeds are decisions in a second of processor time, so that other processes hardly count.
MDPTetris prints the lines of each game and no decisions: a line takes 2.5 pieces, and a game ends with a
board that is about half full.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure.cli import make_parser, measurement, read
from measure.provenance import title, write_result
from tetris import Rollout, Rules, Score, published
from tetris.commands.command_line import one_line_errors, positive_int, run
from tetris.evaluation.text_table import table

STREAMS, SEED, WARM_UP = 64, 12345, 1000
BOARD = "10x10"
_PIECES_A_LINE = 2.5  # four cells a piece, ten a line
_LEFT = 12.5  # pieces on a board that is half full


def play_theirs(folder: Path, games: int) -> tuple[list[int], float]:
    """Return the lines of games that MDPTetris plays, and the seconds of processor time they take.

    Raises:
        ValueError: If there is no such program, or it fails.
    """
    program = folder / "src" / "mdptetris_play_games"
    if not program.is_file():
        raise ValueError(f"expected a built copy of MDPTetris in {folder}, found no {program}")
    size = BOARD.split("x")
    with tempfile.TemporaryDirectory() as name:
        words = [program.resolve(), "features/record_du.dat", games, *size, Path(name) / "statistics"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [*map(str, words)], cwd=folder / "data", capture_output=True, text=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    scores = next((line for line in done.stdout.splitlines() if line[:1].isdigit()), "")
    lines = [int(word) for word in scores.split()]
    if done.returncode or len(lines) != games:
        raise ValueError(f"expected {games} scores of {program}, got {done.stdout}{done.stderr}")
    return lines, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _cflags(folder: Path) -> str:
    """Return the compiler's flags by which MDPTetris was built, by its makefile."""
    makefile = folder / "src" / "Makefile"
    lines = makefile.read_text(errors="replace").splitlines() if makefile.is_file() else []
    return next((line.partition("=")[2].strip() for line in lines if line.startswith("CFLAGS =")), "unknown")


@measurement
def main(argv: Sequence[str] | None = None) -> None:
    """Play in alternation, print both speeds, write the result."""
    parser = make_parser(__doc__, "FOLDER", ())
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a built copy of MDPTetris")
    parser.add_argument("--games", type=positive_int, default=100, help="of theirs in a round (default: 100)")
    parser.add_argument("--rounds", type=positive_int, default=7, help="(default: 7)")
    arguments, _ = read(parser, argv)
    with one_line_errors():
        play_theirs(arguments.folder, 1)
    controller = published("bcts")
    torch.set_num_threads(1)
    weights = torch.tensor([controller.weights], dtype=torch.float32)
    rules = Rules(*Rules.parse_board(BOARD))
    games = Rollout(weights, rules, STREAMS, SEED, "cpu", features=controller.features)
    games.advance(WARM_UP)
    before = games.advance(0)
    decisions = WARM_UP
    ours: list[float] = []
    theirs: list[float] = []
    their_lines: list[int] = []
    for _ in range(arguments.rounds):
        lines, seconds = play_theirs(arguments.folder, arguments.games)
        their_lines += lines
        theirs.append((_PIECES_A_LINE * sum(lines) + _LEFT * len(lines)) / seconds)
        began = time.process_time()
        after = games.advance(decisions)
        taken = time.process_time() - began
        ours.append(decisions * STREAMS / taken)
        decisions = max(1, round(ours[-1] * seconds / STREAMS))  # the next round takes as long as theirs
    score = Score(int(after.lines[0] - before.lines[0]), int(after.games[0] - before.games[0]), 0)
    their_score = Score(sum(their_lines), len(their_lines), 0)
    speeds = {"mdptetris": theirs, "ours": ours}
    scores = {"mdptetris": their_score, "ours": score}
    ratio = statistics.median(ours) / statistics.median(theirs)
    header = ["bcts on 10x10, one core", "decisions/s", "least", "most", "lines a game"]
    rows = []
    for name, values in speeds.items():
        shown = (statistics.median(values), min(values), max(values))
        rows.append([name, *(f"{value:,.0f}" for value in shown), f"{scores[name].lines_per_game:,.0f}"])
    print(f"{title()}\n{table(header, rows)}\n{ratio:.1f} times")
    figures = {
        "mdptetris.bcts.10x10.decisions_per_second_per_core": statistics.median(theirs),
        "mdptetris.ours.bcts.10x10.decisions_per_second_per_core": statistics.median(ours),
        "mdptetris.speedup": ratio,
    }
    data = {
        "controller": "bcts",
        "board": BOARD,
        "clock": "processor time",
        "cflags": _cflags(arguments.folder),
        "ranges": {name: [min(values), max(values)] for name, values in speeds.items()},
        "scores": {
            name: {"lines_per_game": each.lines_per_game, "ci95": each.ci95, "games": each.games}
            for name, each in scores.items()
        },
    }
    write_result(arguments.json, figures, data, "cpu")


if __name__ == "__main__":
    run(main)
