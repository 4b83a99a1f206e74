"""Measure what the record's controller plays on 10x20 when it looks ahead, beside DT-20.

python scripts/measure lookahead --keep runs/lookahead --stop-after 540 --json lookahead.json

In rounds, each on pieces of its own, which neither training nor whoever chose the recipe has met: as many as
begin in time. The same command goes on where it stopped. The controller was trained without looking ahead.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

from kernels.support.files import write_text
from measure.cli import KEEP, measurement
from measure.engines import build_engines
from measure.played import played
from measure.processes import least_lines
from measure.provenance import Measured, commit
from measure.record import BOARD, REFERENCE, SCORE_SEED
from tetris import Rules, Score, published

RECORD = "best"
ROUNDS = 20
STREAMS = 125_000
DECISIONS = {
    f"{RECORD}.ahead": 3_000_000_000,
    f"{REFERENCE}.ahead": 1_000_000_000,
    f"{REFERENCE}.known1": 5_000_000_000,
}
"""Decisions of a round by controller and way, thousands on each stream: a minute on an H200."""


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return lines a game, over all rounds."""
    began, stop_after_s = time.monotonic(), arguments.stop_after or math.inf
    rules = Rules(*Rules.parse_board(BOARD))
    features = {name: (published(name).features, rules.width) for name in (RECORD, REFERENCE)}
    if device == "cuda":
        build_engines(features.values(), [(1, True)])
        build_engines([features[REFERENCE]])
    # Rounds of another commit or device are not added to.
    name = f"{commit()[0]}-{device}.jsonl"
    file = (arguments.keep or Path("runs/lookahead")) / name
    rounds = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    longest_s = 0.0
    while len(rounds) < ROUNDS and not (rounds and time.monotonic() - began + longest_s > stop_after_s):
        start = time.monotonic()
        rounds.append({of: _played(of, rules, device, SCORE_SEED + len(rounds)) for of in DECISIONS})
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, "".join(json.dumps(each) + "\n" for each in rounds))
        longest_s = max(longest_s, time.monotonic() - start)
    figures: dict[str, float] = {"lookahead.rounds": len(rounds)}
    found = []
    for of in DECISIONS:
        score = sum((Score(*each[of]["counts"]) for each in rounds), Score(0, 0, 0))
        named = {"controller": of, "lines_per_game": score.lines_per_game, "ci95": list(score.ci95)}
        found.append({**named, **vars(score)})
        figures[f"lookahead.{of}.{BOARD}.lines_per_game"] = least_lines(named)
        figures[f"lookahead.{of}.{BOARD}.decisions_per_second"] = statistics.median(
            each[of]["decisions_per_second"] for each in rounds
        )
    return figures, {"measurements": found, "rounds": rounds}, {}


def _played(of: str, rules: Rules, device: str, seed: int) -> dict[str, Any]:
    """Return lines, games and decisions of a controller in a round."""
    name, _, way = of.partition(".")
    made = played(name, rules, DECISIONS[of], device, lookahead=way == "ahead", seed=seed, streams=STREAMS)
    counts = [made[count] for count in ("lines", "games", "decisions")]
    return {"counts": counts, "decisions_per_second": made["decisions_per_second"]}


main = measurement(measure, __doc__, KEEP)
