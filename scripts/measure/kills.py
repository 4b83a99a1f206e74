"""Measure what comes before the end of a game: the pieces, the height of the stack, its holes.

python scripts/measure kills
python scripts/measure kills --boards 10x10 --json kills.json

Where games end often they are played. On higher boards streams near an end are continued many times, with
weights, as importance splitting does it (`tetris.splitting`); on 10x10 and 10x12 both are measured. Errors
are standard errors over independent batches of streams. By the published rule; seven minutes on
two cores.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from measure.cli import boards_option, measurement
from measure.ends import BEFORE, BEGIN, LAST, STREAMS, Ends, Numbers, Pieces, anywhere, ends
from measure.provenance import Measured
from tetris import Rules, published
from tetris.evaluation.estimates import ESTIMATES
from tetris.progress import progress
from tetris.rules import PIECE_LETTERS

WINDOWS = (1, 5, 10, 20, 40, 80, LAST)
"""Numbers of last pieces whose shares are told."""

RUN_WINDOW = 40
"""Last pieces in which runs of S and Z are looked for."""

ANYWHERE = 20_000
"""Stretches of pieces from anywhere, for comparison."""

_DECIMALS = 6  # of the data; errors are a thousand times as large
_S, _Z = PIECE_LETTERS.index("S"), PIECE_LETTERS.index("Z")


class Plan(NamedTuple):
    """One measurement of the script."""

    board: str
    pieces: str
    controller: str
    split: bool
    decisions: int  # on each stream
    rounds: int = 1  # of `ESTIMATES` batches


SPLIT = BEGIN + 1000
PLANS = (
    Plan("10x10", "uniform", "dt20", False, 6000),
    Plan("10x10", "uniform", "best", False, 6000),
    Plan("10x12", "uniform", "dt20", False, 9000),
    Plan("10x12", "uniform", "best", False, 9000),
    Plan("10x10", "uniform", "dt20", True, SPLIT),
    Plan("10x10", "uniform", "best", True, SPLIT),
    Plan("10x12", "uniform", "dt20", True, SPLIT),
    Plan("10x12", "uniform", "best", True, SPLIT),
    Plan("10x20", "uniform", "dt20", True, SPLIT, 4),
    Plan("10x20", "uniform", "best", True, SPLIT, 4),
    Plan("10x10", "bag", "dt20", True, SPLIT, 2),
    Plan("10x10", "bag", "best", True, SPLIT, 2),
)
BOARDS = tuple(dict.fromkeys(plan.board for plan in PLANS))


def longest_run(among: npt.NDArray[np.bool_]) -> Pieces:
    """Return the length of the longest run of true values in each row."""
    longest = running = np.zeros(len(among), dtype=np.int64)
    for column in among.T:
        running = np.where(column, running + 1, 0)
        longest = np.maximum(longest, running)
    return longest


def longest_alternation(pieces: Pieces) -> Pieces:
    """Return in each row the length of the longest run in which S and Z alternate; a lone one counts 1."""
    longest = running = np.zeros(len(pieces), dtype=np.int64)
    before = np.full(len(pieces), -1)
    for column in pieces.T:
        running = np.where((column == _S) | (column == _Z), 1 + running * (column + before == _S + _Z), 0)
        longest = np.maximum(longest, running)
        before = column
    return longest


def mean_and_error(values: Sequence[Any], weights: Sequence[float]) -> tuple[Numbers, Numbers]:
    """Return the weighted mean over batches and its standard error, by the jackknife.

    Args:
        values: Of each batch, a number or an array.
        weights: Of each batch: the weight of the ends it stands for.
    """
    each, by = np.array(values, dtype=np.float64), np.array(weights)
    mean = np.average(each, axis=0, weights=by)
    left_out = [np.average(np.delete(each, i, 0), axis=0, weights=np.delete(by, i)) for i in range(len(each))]
    spread = np.square(np.array(left_out) - np.mean(left_out, axis=0)).sum(0)
    return mean, np.sqrt(spread * (len(each) - 1) / len(each))


def told(batches: Sequence[Ends]) -> dict[str, Any]:
    """Return the statistics of what came before the ends, each with its standard error, for JSON."""
    looked_at = [each for each in batches if len(each.pieces)]
    weights = [each.weight for each in looked_at]

    def over(value: Callable[[Ends], Any]) -> dict[str, Any]:
        mean, error = mean_and_error([value(each) for each in looked_at], weights)
        return {"mean": mean.round(_DECIMALS).tolist(), "error": error.round(_DECIMALS).tolist()}

    return {
        "ends": sum(each.games for each in batches),
        "looked_at": sum(len(each.pieces) for each in batches),
        "batches": len(looked_at),
        "shares": over(lambda each: [shares(each.pieces[:, :window]) for window in WINDOWS]),
        "at": over(lambda each: snakes(each.pieces).mean(0)),
        "excess": over(lambda each: (snakes(each.pieces) - 2 / 7).cumsum(1).mean(0)),
        "runs": over(lambda each: distribution(longest_run(snakes(each.pieces[:, :RUN_WINDOW])))),
        "alternations": over(lambda each: distribution(longest_alternation(each.pieces[:, :RUN_WINDOW]))),
        "heights": over(lambda each: each.heights.mean(0)),
        "holes": over(lambda each: each.holes.mean(0)),
        "usual": over(lambda each: each.usual),
    }


def snakes(pieces: Pieces) -> npt.NDArray[np.bool_]:
    """Return which pieces are S or Z."""
    found: npt.NDArray[np.bool_] = (pieces == _S) | (pieces == _Z)
    return found


def shares(pieces: Pieces) -> Numbers:
    """Return the share of each of the seven pieces, in the order of their numbers."""
    return np.bincount(pieces.ravel(), minlength=len(PIECE_LETTERS)) / pieces.size


def distribution(lengths: Pieces) -> Numbers:
    """Return the share of each length from 0 to `RUN_WINDOW`."""
    return np.bincount(lengths, minlength=RUN_WINDOW + 1) / len(lengths)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return what comes before the end, by board, pieces and controller."""
    plans = [plan for plan in PLANS if not arguments.boards or plan.board in arguments.boards]
    found: list[dict[str, Any]] = []
    figures: dict[str, float] = {}
    for plan in plans:
        rules = Rules(*Rules.parse_board(plan.board), pieces=plan.pieces)
        batches: list[Ends] = []
        name = f"{plan.board}.{plan.pieces}.{plan.controller}.{'split' if plan.split else 'played'}"
        with progress(desc=name, unit=" steps", leave=False) as bar:
            show = partial(bar.update, 1)
            for first in range(0, plan.rounds * ESTIMATES * STREAMS, ESTIMATES * STREAMS):
                batches += ends(
                    *(published(plan.controller), rules, plan.decisions),
                    split=plan.split,
                    first_stream=first,
                    step=show,
                )
        found.append({**plan._asdict(), **told(batches)})
        figures[f"kills.{name}.ends"] = found[-1]["ends"]
        for window, share in zip(WINDOWS, found[-1]["shares"]["mean"], strict=True):
            figures[f"kills.{name}.snakes_{window}"] = share[_S] + share[_Z]
        print(f"{name}: {figures[f'kills.{name}.snakes_{RUN_WINDOW}']:.4f}", flush=True)
    compared = {}
    for pieces in dict.fromkeys(plan.pieces for plan in plans):
        stretches = anywhere(Rules(pieces=pieces), ANYWHERE)[:, :RUN_WINDOW]
        compared[pieces] = {
            "runs": distribution(longest_run(snakes(stretches))).tolist(),
            "alternations": distribution(longest_alternation(stretches)).tolist(),
        }
    data = {
        "windows": WINDOWS,
        "before": BEFORE,
        "run_window": RUN_WINDOW,
        "measurements": found,
        "anywhere": compared,
    }
    return figures, data, {}


main = measurement(measure, __doc__, boards_option(BOARDS), devices=("cpu",))
