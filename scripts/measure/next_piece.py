"""Measure what the next piece is worth: the same controllers do not think of it, look ahead, and know it.

python scripts/measure next_piece
python scripts/measure next_piece --boards 10x5 10x6 --json next_piece.json

By the published rule on low boards, where games end, on the same streams of pieces; and by importance
splitting, on these boards and on higher ones. It takes half an hour on two cores.
"""

from __future__ import annotations

import argparse
from typing import Any

from measure.cli import boards_option, measurement
from measure.engines import build_engines
from measure.played import played
from measure.provenance import Measured
from tetris import Rules, published
from tetris.evaluation.estimates import ESTIMATES, estimate

MILLION = 10**6
WAYS = {"known1": (1, False), "ahead": (1, True), "known2": (2, False)}
"""Pieces known and lookahead, by the name that figures have."""

FIRST = 20 * MILLION
"""Decisions in the first way: thousands of games on each board."""

DECISIONS = {
    "10x5": {"dt20": 4 * MILLION, "best": 2 * MILLION},
    "10x6": {"dt20": 10 * MILLION, "best": 5 * MILLION},
    "10x7": {"dt20": 20 * MILLION, "best": 10 * MILLION},
    "10x8": {"dt20": 40 * MILLION, "best": 20 * MILLION},
}
"""Decisions in the others, by board and controller: thirty games and more."""

ON_A_GPU = {"10x10": {"dt20": 2000 * MILLION, "best": 1000 * MILLION}}
_TIMES = 10  # as many decisions on a GPU
_GPU_DECISIONS_PER_STREAM = 5_000  # so that there are streams enough for it

ESTIMATED = ("10x5", "10x6", "10x8", "10x10", "10x12", "10x16", "10x20")
ESTIMATES_OF = (("dt20", "ahead"), ("best", "ahead"), ("dt20", "known2"))
"""Controllers and ways of the estimates, `BATCHES` of `tetris.evaluation.estimates.ESTIMATES` each."""

BATCHES = 2
BOARDS = tuple(dict.fromkeys([*DECISIONS, *ON_A_GPU, *ESTIMATED]))


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return lines a game of each controller on each board, decided in each way."""
    gpu = device == "cuda"
    decisions = {**DECISIONS, **(ON_A_GPU if gpu else {})}
    measured: list[dict[str, Any]] = []
    estimates: list[dict[str, Any]] = []
    figures: dict[str, float] = {}
    if gpu:
        build_engines(((published(name).features, 10) for name in ("dt20", "best")), WAYS.values())
    for board in arguments.boards or BOARDS:
        rules = Rules(*Rules.parse_board(board))
        for name, count in decisions.get(board, {}).items():
            times = _TIMES if gpu and board in DECISIONS else 1
            for way, how in WAYS.items():
                number = FIRST if way == "known1" else times * count
                streams = number // _GPU_DECISIONS_PER_STREAM if gpu else None
                found = played(name, rules, number, device, *how, streams=streams)
                measured.append(found)
                key = f"next_piece.{board}.{name}.{way}"
                figures[f"{key}.lines_per_game"] = found["lines_per_game"]
                figures[f"{key}.decisions_per_second"] = found["decisions_per_second"]
        if board in ESTIMATED:
            for name, way in ESTIMATES_OF:
                estimates.append(_estimated(name, rules, device, WAYS[way]))
                figures[f"next_piece.{board}.{name}.{way}.estimated"] = estimates[-1]["lines_per_game"]
    return figures, {"measurements": measured, "estimates": estimates}, {}


def _estimated(name: str, rules: Rules, device: str, how: tuple[int, bool]) -> dict[str, Any]:
    """Return estimates of a controller."""
    count = BATCHES * ESTIMATES
    who = (name, published(name), rules, device)
    return estimate(
        *who, lambda found: len(found.rates) >= count, pieces_known=how[0], lookahead=how[1]
    ).to_dict()


main = measurement(measure, __doc__, boards_option(BOARDS))
