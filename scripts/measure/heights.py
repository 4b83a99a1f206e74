"""Measure lines a game against the height of the board: by play on low boards, by splitting on high ones.

python scripts/measure heights
python scripts/measure heights --boards 10x4 10x14 --json heights.json

`dt20` and `best` on boards ten columns wide, one piece known; on the lowest one the next piece, too, which
`next_piece` measures on higher ones. `dt20` also on narrow boards whose perfect play is known. By the
published rule; five minutes on two cores.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from measure.cli import boards_option, measurement
from measure.played import played
from measure.provenance import Measured
from tetris import Rules, published
from tetris.evaluation.estimates import ESTIMATES, estimate

MILLION = 10**6
CONTROLLERS = ("dt20", "best")
PLAYED: Mapping[str, int] = {
    **{f"10x{height}": 20 * MILLION for height in range(4, 10)},
    **{f"10x{height}": 100 * MILLION for height in range(10, 13)},
}
"""Decisions of each controller by board, one piece known: some hundred games and more."""

NEXT_KNOWN: Mapping[str, int] = {"10x4": 4 * MILLION}
"""Decisions of each controller by board, the next piece known."""

NARROW: Mapping[str, int] = dict.fromkeys(("4x4", "4x5", "4x6", "5x4", "6x4"), 20 * MILLION)
"""Decisions of dt20 by board, one piece known."""

ESTIMATED = tuple(f"10x{height}" for height in range(10, 21))
BATCHES = 2
"""Batches of estimates; see `tetris.evaluation.estimates`."""

BOARDS = tuple(dict.fromkeys([*NARROW, *PLAYED, *ESTIMATED]))
_PLANS = ((PLAYED, CONTROLLERS, 1), (NEXT_KNOWN, CONTROLLERS, 2), (NARROW, ("dt20",), 1))


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return lines a game by board, controller and pieces known, played and estimated."""
    measured: list[dict[str, Any]] = []
    estimates: list[dict[str, Any]] = []
    figures: dict[str, float] = {}
    for board in arguments.boards or BOARDS:
        rules = Rules(*Rules.parse_board(board))
        for plan, names, known in _PLANS:
            for name in names if board in plan else ():
                measured.append(played(name, rules, plan[board], device, known))
                figures[f"heights.{board}.{name}.known{known}"] = measured[-1]["lines_per_game"]
        for name in CONTROLLERS if board in ESTIMATED else ():
            estimates.append(_estimated(name, rules, device))
            figures[f"heights.{board}.{name}.known1.estimated"] = estimates[-1]["lines_per_game"]
    return figures, {"measurements": measured, "estimates": estimates}, {}


def _estimated(name: str, rules: Rules, device: str) -> dict[str, Any]:
    enough = BATCHES * ESTIMATES
    return estimate(
        *(name, published(name), rules, device, lambda found: len(found.rates) >= enough)
    ).to_dict()


main = measurement(measure, __doc__, boards_option(BOARDS))
