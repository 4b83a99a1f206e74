"""Score the controllers that come with the package on low boards, where a GPU ends many thousand games.

python scripts/measure/best_scores.py --json best_scores.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure.cli import make_parser, measurement, read
from measure.engines import build_engines
from measure.processes import python
from measure.provenance import write_result
from tetris.commands.command_line import run
from tetris.controller import resolve

CONTROLLERS = ("best", "anywidth", "dt20")
DECISIONS = {"10x10": 2_000_000_000, "10x12": 10_000_000_000}
"""Of each controller: tens of thousands of games of the best one."""


@measurement
def main(argv: Sequence[str] | None = None) -> None:
    """Play, print and write the scores."""
    arguments, _ = read(make_parser(__doc__, devices=()), argv)
    build_engines((resolve(name).features, 10) for name in CONTROLLERS)
    found = []
    for board, decisions in DECISIONS.items():
        words = (*CONTROLLERS, "--board", board, "--decisions", decisions, "--device", "cuda", "--json")
        found += json.loads(python("scripts/evaluate_tetris.py", *words))
    figures = {}
    for each in found:
        figures[f"{each['controller']}.{each['board']}.lines_per_game"] = each["lines_per_game"]
        del each["features"], each["weights"]
    print(json.dumps(figures, indent=1))
    write_result(arguments.json, figures, {"measurements": found}, "cuda")


if __name__ == "__main__":
    run(main)
