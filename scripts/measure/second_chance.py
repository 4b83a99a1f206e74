"""Measure what would survive the end of a game: others play on from the same board, with the same pieces.

python scripts/measure second_chance
python scripts/measure second_chance --json second_chance.json

Every 120 decisions, the others take the boards of the controller that is watched. Where one of its games ends
within 80 decisions, another survives if it is still in its own game after all 120: forty decisions or more
after that end, on the same pieces. On 10x10 by the published rule; eight minutes on two cores.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import torch

from measure.cli import measurement
from measure.provenance import Measured
from tetris import Rules, published
from tetris.evaluation import DEFAULT_SEED
from tetris.progress import progress
from tetris.rollouts import Rollout
from tetris.splitting import BURN_IN

BOARD = "10x10"
WINDOW, WATCHED = 120, 80
"""Decisions from one taking of boards to the next, and those of them in which ends are looked for."""

AHEAD = (5, 10, 20, 40, WATCHED)
"""Pieces before the end at which the others began, as upper ends of ranges."""


class Other(NamedTuple):
    """Who plays on."""

    controller: str
    pieces_known: int


OTHERS = (Other("dt20", 1), Other("best", 1), Other("dt20", 2), Other("best", 2))
STREAMS = 1024
WINDOWS = {"dt20": 150, "best": 400}
"""Windows by the controller that is watched: a thousand ends of each."""


def chances(
    name: str,
    others: tuple[Other, ...],
    rules: Rules,
    streams: int,
    windows: int,
    device: str = "cpu",
) -> tuple[list[int], list[list[int]]]:
    """Return how many games ended, by the range of `AHEAD`, and how many of them each other survived."""

    def begun(controller: str, pieces_known: int) -> Rollout:
        who = published(controller)
        return Rollout(
            *([who.weights], rules, streams, DEFAULT_SEED, device),
            features=who.features,
            pieces_known=pieces_known,
        )

    watched, playing = begun(name, 1), [begun(*other) for other in others]
    for games in (watched, *playing):
        games.play_on(BURN_IN)
    ranges = torch.tensor(AHEAD)
    ended, survived = torch.zeros(len(AHEAD)).long(), torch.zeros(len(others), len(AHEAD)).long()
    with progress(desc=name, unit=" windows", leave=False) as bar:
        for _ in range(windows):
            for games in playing:
                games.columns.copy_(watched.columns)
            before = [games.stream_games for games in playing]
            end = torch.zeros(streams, dtype=torch.int64)  # the decision that ended the first game, from 1
            games_before = watched.stream_games[0]
            for decision in range(1, WATCHED + 1):
                watched.play_on(1)
                end[(end == 0) & (watched.stream_games[0].cpu() > games_before.cpu())] = decision
            watched.play_on(WINDOW - WATCHED)
            where = torch.bucketize(end[end > 0], ranges)
            ended += torch.bincount(where, minlength=len(AHEAD))
            for row, games, played in zip(survived, playing, before, strict=True):
                games.play_on(WINDOW)
                alive = (games.stream_games == played)[0].cpu()[end > 0]
                row += torch.bincount(where[alive], minlength=len(AHEAD))
            bar.update(1)
    return ended.tolist(), survived.tolist()


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return what share of the ends of each controller others survive, by how early they took over."""
    rules = Rules(*Rules.parse_board(BOARD))
    found: list[dict[str, Any]] = []
    figures: dict[str, float] = {}
    for name, windows in WINDOWS.items():
        ended, survived = chances(name, OTHERS, rules, STREAMS, windows, device)
        rows = [{**other._asdict(), "survived": each} for other, each in zip(OTHERS, survived, strict=True)]
        found.append({"controller": name, "board": BOARD, "ended": ended, "others": rows})
        for other, each in zip(OTHERS, survived, strict=True):
            key = f"second_chance.{name}.{other.controller}.known{other.pieces_known}"
            figures[key] = sum(each) / max(sum(ended), 1)
    return figures, {"ahead": AHEAD, "window": WINDOW, "measurements": found}, {}


main = measurement(measure, __doc__)
