"""Tables as text: of scores, and of anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernels.support.printable import printable
from tetris.game.feature_sets import feature_label
from tetris.game.policy import Lookahead
from tetris.play.controller import published
from tetris.record.numbers import format_lines

Score = Mapping[str, Any]
"""A score as plain values: `Measurement.to_dict`, `Estimate.to_dict` or `published_score` gives it."""


def is_estimate(score: Score) -> bool:
    """Return whether a score was estimated by importance splitting, not played."""
    return "estimates" in score


def counted(score: Score) -> str:
    """Return from how many games or estimates a score comes."""
    if is_estimate(score):
        return f"{score['estimates']} estimate{'s'[: score['estimates'] != 1]}"
    return f"{score['games']:,} game{'s'[: score['games'] != 1]}"


def score_table(scores: Sequence[Score]) -> str:
    """Return the scores on a board with intervals, counts and speed, or the origin of shipped ones."""
    first, rows, notes = scores[0], [], ""
    pieces = f"{first['pieces']} ({'from a file' if first['seed'] is None else 'seed ' + str(first['seed'])})"
    for score in scores:
        (low, high), seconds, shipped = score["ci95"], score.get("seconds"), score.get("measured")
        speed = f"{format_lines(score['decisions'] / seconds)}/s" if seconds else "-"
        rows.append(
            [
                score["controller"],
                feature_label(score.get("features") or published(score["controller"]).features),
                format_lines(score["lines_per_game"]),
                f"> {format_lines(low)}" if high is None else f"{format_lines(low)} - {format_lines(high)}",
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
