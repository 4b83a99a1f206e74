"""Compare a learned controller with published ones, on the boards of the literature and on its own.

A score is played, or estimated by importance splitting for controllers that rarely lose. The package holds
the scores of the published controllers on the boards of the literature: a score is a function of controller,
rules, pieces and seed, on any machine. The figures of the papers are quoted from memory; papers round them
and give no intervals. Fahey's 660,000 for Dellacherie's controller is left out: it has other rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from kernels.support.printable import counted as count_of
from kernels.support.printable import printable
from tetris.evaluation.estimates import MOST_ENDS, PLAYED, STREAMS, Estimate, estimate, games_ended
from tetris.evaluation.scores import Limit, Measurement, Trial, measure
from tetris.game.feature_sets import feature_label
from tetris.game.policy import Lookahead
from tetris.game.rules import Rules
from tetris.play.controller import LinearController, published
from tetris.play.devices import NATIVE
from tetris.record.numbers import format_lines

LEARNED = "learned"
"""The label of the learned controller among the scores of its run."""

REFERENCES = ("bcts", "dt20")
BEST_PUBLISHED = "dt20"

BOARDS = ((10, 10), (10, 20))
"""The boards on which the literature scores controllers."""

MOST_ESTIMATED = 300_000_000
"""Decisions of an estimate: those of a score or that many, in whole batches of `estimate`."""

_SHIPPED = Path(__file__).with_name("published_scores.json")

Score = Mapping[str, Any]
"""A score as plain values: `Measurement.to_dict`, `Estimate.to_dict` or `published_score` gives it."""


@dataclass(frozen=True)
class PaperFigure:
    """Lines per game by the published rule, from the lowest to the highest figure of papers, approximate."""

    low: float
    high: float

    def __str__(self) -> str:
        """Return the figures as text: ``4,300``, ``31-36 M``."""
        if self.high < 1e6:
            return f"{self.low:,.0f}" if self.low == self.high else f"{self.low:,.0f}-{self.high:,.0f}"
        ends = dict.fromkeys(f"{value / 1e6:g}" for value in (self.low, self.high))
        return f"{'-'.join(ends)} M"


PUBLISHED_SCORES: Mapping[str, Mapping[str, PaperFigure]] = {
    "dellacherie": {"10x20": PaperFigure(5.2e6, 5.2e6)},
    "bcts": {"10x10": PaperFigure(3800, 3800), "10x20": PaperFigure(31e6, 36e6)},
    "bdu": {"10x10": PaperFigure(4200, 4200), "10x20": PaperFigure(36e6, 36e6)},
    "dt10": {"10x10": PaperFigure(5000, 5000), "10x20": PaperFigure(29e6, 29e6)},
    "dt20": {"10x10": PaperFigure(4300, 4300), "10x20": PaperFigure(51e6, 51e6)},
}
"""The papers' scores of the published controllers by name and board.

Thiery & Scherrer 2009: the first three; Gabillon, Ghavamzadeh & Scherrer 2013: all but the first."""


@cache
def _shipped() -> tuple[dict[str, Any], ...]:
    content = json.loads(_SHIPPED.read_text(encoding="utf-8"))
    return tuple({**score, "measured": content["measured"]} for score in content["scores"])


def published_score(name: str, rules: Rules) -> dict[str, Any] | None:
    """Return the score of a published controller in the package: on the boards of the literature, if any.

    ``measured`` has commit, date and machine.
    """
    wanted = name, rules.board, rules.rule, rules.pieces
    keys = "controller", "board", "rule", "pieces"
    return next((dict(each) for each in _shipped() if tuple(map(each.get, keys)) == wanted), None)


def boards(controller: LinearController, own: Rules) -> list[Rules]:
    """Return its own rules and, by the same rule and pieces, those boards of the literature that suit it."""
    known = [replace(own, width=width, height=height) for width, height in BOARDS]
    found = []
    for rules in dict.fromkeys([*known, own]):
        with suppress(ValueError):
            controller.names_on(rules)
            found.append(rules)
    return found


def compare(trial: Trial, decisions: int, check: Callable[[], None] | None = None) -> Iterator[Score]:
    """Yield the score of the learned controller on a board, then those of the published ones.

    All play the streams of ``python -m tetris evaluate``, for as many decisions; see `measure`.
    """
    yield _score(trial, decisions, check).to_dict()
    for name in REFERENCES:
        known = published_score(name, trial.rules) if trial.lookahead is Lookahead.NONE else None
        other = replace(trial, label=name, controller=published(name))
        yield known or _score(other, decisions, check).to_dict()


def _score(trial: Trial, decisions: int, check: Callable[[], None] | None) -> Measurement | Estimate:
    if trial.device in NATIVE and decisions >= PLAYED and games_ended(trial) <= MOST_ENDS:
        least = min(decisions, MOST_ESTIMATED)
        streams = STREAMS if decisions > 2 * PLAYED else STREAMS // 2
        return estimate(trial, lambda found: found.decisions >= least, streams, check)
    return measure(trial, Limit(decisions=decisions), check)


def verdict(scores: Sequence[Score]) -> str:
    """Return a line that compares the first score, the learned one, with that of dt20."""
    learned = scores[0]
    value = learned["lines_per_game"]
    how = "estimated" if is_estimate(learned) else "played"
    interval = interval_text(learned)
    if value is None:
        return f"{interval} lines per game on {learned['board']}: no game ended"
    text = f"{format_lines(value)} lines per game on {learned['board']} ({how}, 95 % interval {interval})"
    best = next((each["lines_per_game"] for each in scores if each["controller"] == BEST_PUBLISHED), None)
    times = value / best if best else 0.0
    if times < 0.1:
        return text
    literature = learned["board"], learned["rule"], learned["pieces"]
    one_known = Lookahead.from_dict(learned) is not Lookahead.PREVIEW
    is_record = literature == ("10x20", "published", "uniform") and one_known
    known = ", the best published linear one" if is_record else ""
    return f"{text}: {times:{'.0f' if times >= 10 else '.2g'}} times {BEST_PUBLISHED}{known}"


def interval_text(score: Score) -> str:
    """Return the 95 % interval of a score, or its lower end where it has no other."""
    low, high = map(format_lines, score["ci95"])
    return f"{low} - {high}" if score["ci95"][1] is not None else f"> {low}"


def is_estimate(score: Score) -> bool:
    """Return whether a score was estimated by importance splitting, not played."""
    return "estimates" in score


def counted(score: Score) -> str:
    """Return from how many games or estimates a score comes."""
    kind = "estimate" if is_estimate(score) else "game"
    return count_of(score[f"{kind}s"], kind)


def score_table(scores: Sequence[Score]) -> str:
    """Return the scores on a board with intervals, counts and speed, or the origin of shipped ones."""
    first, rows, notes = scores[0], [], ""
    pieces = f"{first['pieces']} (seed {first['seed']})"
    for score in scores:
        seconds, shipped = score.get("seconds"), score.get("measured")
        speed = f"{format_lines(score['decisions'] / seconds)}/s" if seconds else "-"
        rows.append(
            [
                score["controller"],
                feature_label(score.get("features") or published(score["controller"]).features),
                format_lines(score["lines_per_game"]),
                interval_text(score),
                counted(score),
                f"{score['decisions']:,}",
                f"{shipped['machine']}, {shipped['date'][:10]}" if shipped else speed,
            ]
        )
        if not score.get("resolved", True):
            name = printable(score["controller"])
            notes += f"\n{name}: beyond what the weights of streams resolve; the estimate is biased"
    pieces += Lookahead.from_dict(first).phrase
    where = f"board {first['board']}, {first['rule']} rule, pieces {pieces}"
    title = f"{where}, engine {first['device']}"
    header = ["controller", "features", "lines/game", "95 % interval", "from", "decisions", "speed"]
    return f"{printable(title)}\n{table(header, rows)}{notes}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as text: the first column flush left, the others flush right."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
