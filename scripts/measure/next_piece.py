"""Measure what knowing the next piece is worth: the same controllers play with one piece known and with two.

python scripts/measure next_piece
python scripts/measure next_piece --boards 10x5 10x6 --json next_piece.json

By the published rule on low boards, where games end, on the same streams of pieces; and, where the next piece
is known, by importance splitting, on these boards and on higher ones. It takes a quarter of an hour on two
cores.
"""

from __future__ import annotations

import argparse
from typing import Any

from measure.cli import Options, measurement
from measure.played import played
from measure.provenance import Measured
from tetris import Rules, published
from tetris.evaluation.estimates import ESTIMATES, estimate

MILLION = 10**6
DECISIONS = {
    "10x5": {"dt20": 4 * MILLION, "best": 2 * MILLION},
    "10x6": {"dt20": 10 * MILLION, "best": 5 * MILLION},
    "10x7": {"dt20": 20 * MILLION, "best": 10 * MILLION},
    "10x8": {"dt20": 40 * MILLION},
}
"""Decisions with the next piece known, by board and controller: fifty games and more."""

ONE_KNOWN = 20 * MILLION
"""Decisions with one piece known: thousands of games on each board."""


ESTIMATED = {"10x5": 1, "10x6": 1, "10x8": 2, "10x10": 2, "10x12": 2, "10x16": 2, "10x20": 2}
"""Batches of estimates of dt20 with the next piece known, by board: see `tetris.evaluation.estimates`."""

BOARDS = tuple(dict.fromkeys([*DECISIONS, *ESTIMATED]))


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return lines a game of each controller on each board, with one piece known and with two."""
    measured: list[dict[str, Any]] = []
    estimates: list[dict[str, Any]] = []
    figures: dict[str, float] = {}
    for board in arguments.boards or BOARDS:
        rules = Rules(*Rules.parse_board(board))
        for name, decisions in DECISIONS.get(board, {}).items():
            for known in (1, 2):
                found = played(name, rules, decisions if known == 2 else ONE_KNOWN, device, known)
                measured.append(found)
                key = f"next_piece.{board}.{name}.known{known}"
                figures[f"{key}.lines_per_game"] = found["lines_per_game"]
                figures[f"{key}.decisions_per_second"] = found["decisions_per_second"]
        if board in ESTIMATED:
            estimates.append(_estimated(rules, ESTIMATED[board] * ESTIMATES, device))
            figures[f"next_piece.{board}.dt20.known2.estimated"] = estimates[-1]["lines_per_game"]
    return figures, {"measurements": measured, "estimates": estimates}, {}


def _estimated(rules: Rules, count: int, device: str) -> dict[str, Any]:
    """Return as many estimates of dt20 with the next piece known."""
    return estimate(
        *("dt20", published("dt20"), rules, device, lambda found: len(found.rates) >= count),
        pieces_known=2,
    ).to_dict()


OPTIONS: Options = {
    "--boards": {"nargs": "+", "metavar": "WxH", "choices": BOARDS, "help": ", ".join(BOARDS)}
}
main = measurement(measure, __doc__, OPTIONS)
