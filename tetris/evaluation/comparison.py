"""Compares a learned controller with published ones, on the literature's boards and its own.

A score is measured by playing games or, for controllers that rarely lose, estimated by
importance splitting. The package contains the scores of the published controllers on the boards
of the literature, because a score depends only on controller, rules, pieces and seed, not on
the machine. The figures of the papers are quoted from memory; papers round them and give no
intervals. Fahey's 660,000 for Dellacherie's controller is left out, because the rules differ.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from kernels.support.printable import counted, printable
from tetris import LinearController, Lookahead, Rules, published
from tetris.evaluation.estimates import (
    MOST_ENDS,
    PLAYED,
    STREAMS,
    Estimate,
    estimate,
    games_ended,
)
from tetris.evaluation.measurement import Limit, Measurement, Trial, measure
from tetris.game.feature_sets import feature_label
from tetris.play.devices import NATIVE
from tetris.record.numbers import format_lines

LEARNED = "learned"
"""The label of the learned controller among the scores of its run."""

REFERENCES = ("bcts", "dt20")
"""The published controllers that a learned one is compared with."""

BEST_PUBLISHED = "dt20"

BOARDS = ((10, 10), (10, 20))
"""The boards on which the literature scores controllers."""

MOST_ESTIMATED = 300_000_000
"""The most decisions that an estimate takes, even if a played score would take more."""

_SHIPPED = Path(__file__).with_name("published_scores.json")

Score = Mapping[str, Any]
"""A score as plain values, from `Measurement`, `Estimate` or `published_score`."""

Game = tuple[str, str, str, str]
"""The board, the rule, the pieces and the phrase of the lookahead of a score.

Only scores for which these are equal can be compared."""

PUBLISHED_SCORES: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "dellacherie": {"10x20": (5.2e6, 5.2e6)},
    "bcts": {"10x10": (3800, 3800), "10x20": (31e6, 36e6)},
    "bdu": {"10x10": (4200, 4200), "10x20": (36e6, 36e6)},
    "dt10": {"10x10": (5000, 5000), "10x20": (29e6, 29e6)},
    "dt20": {"10x10": (4300, 4300), "10x20": (51e6, 51e6)},
}
"""The papers' scores of the published controllers by name and board, approximately.

They are lines per game by the published rule, the papers' lowest and highest figure. Thiery &
Scherrer 2009 have the first three; Gabillon, Ghavamzadeh & Scherrer 2013 all but the first.
"""


def paper_text(low: float, high: float) -> str:
    """Return a score of `PUBLISHED_SCORES` as text, such as ``4,300`` or ``31-36 M``."""
    unit = ""
    low_text = f"{low:,.0f}"
    high_text = f"{high:,.0f}"
    if high >= 1e6:
        unit = " M"
        low_text = f"{low / 1e6:g}"
        high_text = f"{high / 1e6:g}"
    return f"{low_text}{unit}" if low == high else f"{low_text}-{high_text}{unit}"


@cache
def _shipped() -> tuple[dict[str, Any], ...]:
    content = json.loads(_SHIPPED.read_text(encoding="utf-8"))
    return tuple({**score, "measured": content["measured"]} for score in content["scores"])


def published_score(name: str, rules: Rules, lookahead: Lookahead) -> dict[str, Any] | None:
    """Return the package's score of a published controller in a game; None if it has none.

    Its entry ``measured`` has the commit, the date and the machine.
    """
    game = rules.board, rules.rule, rules.pieces, lookahead.phrase
    for score in _shipped():
        if score["controller"] == name and game_of(score) == game:
            return dict(score)
    return None


def game_of(score: Score) -> Game:
    """Return the game in which a score was measured."""
    lookahead = Lookahead.from_dict(score).phrase
    return score["board"], score["rule"], score["pieces"], lookahead


def boards(controller: LinearController, own_rules: Rules) -> list[Rules]:
    """Return the rules by which a learned controller is scored, one for each board.

    First come the boards of the literature, then its own board. Boards on which the controller
    cannot play are left out.
    """
    candidates = [replace(own_rules, width=width, height=height) for width, height in BOARDS]
    playable = []
    for rules in dict.fromkeys([*candidates, own_rules]):  # Each board once.
        with suppress(ValueError):
            controller.names_on(rules)  # It raises if the controller cannot play.
            playable.append(rules)
    return playable


def compare(
    trial: Trial, decisions: int, check: Callable[[], None] | None = None
) -> Iterator[Score]:
    """Yield the score of a learned controller, then the scores of published ones on its board.

    All controllers play the same streams of pieces, as in ``python -m tetris evaluate``.

    Args:
        trial: The learned controller and its games.
        decisions: The number of decisions for each score.
        check: Called a few times a second; an exception ends the comparison.
    """
    yield _score(trial, decisions, check).to_dict()
    for name in REFERENCES:
        shipped = published_score(name, trial.rules, trial.lookahead)
        reference = replace(trial, label=name, controller=published(name))
        yield shipped or _score(reference, decisions, check).to_dict()


def _score(
    trial: Trial, decisions: int, check: Callable[[], None] | None
) -> Measurement | Estimate:
    """Return the score of a controller, which is estimated if its games rarely end.

    Otherwise the score is measured in games. It is always measured with the Python engine, and
    with too few decisions for an estimate. An estimate plays `MOST_ESTIMATED` decisions at
    most.
    """
    can_estimate = trial.device in NATIVE and decisions >= PLAYED
    # `games_ended` plays the controller for `PLAYED` decisions, to see how often its games end.
    if can_estimate and games_ended(trial) <= MOST_ENDS:
        enough = min(decisions, MOST_ESTIMATED)
        # If few decisions are asked for, an estimate has half as many streams.
        streams = STREAMS if decisions > 2 * PLAYED else STREAMS // 2
        return estimate(trial, lambda result: result.decisions >= enough, streams, check)
    return measure(trial, Limit(decisions=decisions), check)


def verdict(scores: Sequence[Score]) -> str:
    """Return a line of text that compares a learned controller with dt20, a published one.

    Args:
        scores: First the score of the learned controller, then scores of published ones. A
            score has the lines per game, which are None if no game ended, and the board, the
            rule and the pieces of its games.
    """
    learned = scores[0]
    lines = learned["lines_per_game"]
    board = learned["board"]
    interval = interval_text(learned)
    if lines is None:
        return f"{interval} lines per game on {board}: no game ended"
    method = "estimated" if is_estimate(learned) else "played"
    text = f"{format_lines(lines)} lines per game on {board} "
    text += f"({method}, 95 % interval {interval})"
    scores_of_dt20 = [score for score in scores if score["controller"] == BEST_PUBLISHED]
    lines_of_dt20 = scores_of_dt20[0]["lines_per_game"] if scores_of_dt20 else None
    # Mention dt20 only if its lines are known, and the learned controller is not far worse.
    ratio = lines / lines_of_dt20 if lines_of_dt20 else 0.0
    if ratio < 0.1:
        return text
    ratio_text = f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2g}"
    text += f": {ratio_text} times {BEST_PUBLISHED}"
    if _is_game_of_papers(learned):
        text += ", the best published linear one"
    return text


def _is_game_of_papers(score: Score) -> bool:
    """Return whether a score is from the game for which dt20 has the best published score.

    It is the best one of a linear controller that does not know the next piece.
    """
    game = score["board"], score["rule"], score["pieces"]
    knows_next = Lookahead.from_dict(score) is Lookahead.PREVIEW
    return game == ("10x20", "published", "uniform") and not knows_next


def interval_text(score: Score) -> str:
    """Return the 95 % interval of a score as text. Without an upper end: "> lower end"."""
    low, high = score["ci95"]
    if high is None:
        return f"> {format_lines(low)}"
    return f"{format_lines(low)} - {format_lines(high)}"


def is_estimate(score: Score) -> bool:
    """Return whether a score was estimated by importance splitting, not played."""
    return "estimates" in score


def count_text(score: Score) -> str:
    """Return the number of games or estimates of a score, as text."""
    kind = "estimate" if is_estimate(score) else "game"
    return counted(score[f"{kind}s"], kind)


def score_table(scores: Sequence[Score]) -> str:
    """Return scores on one board as text: a title, a table with a row per score, and notes.

    A score is the result of played games, or an estimate by importance splitting. If the entry
    ``resolved`` of an estimate is False, games end so rarely that rounding has biased it. A
    note below the table says so.
    """
    notes = ""
    for score in scores:
        if not score.get("resolved", True):
            notes += (
                f"\n{printable(score['controller'])}: games end too rarely for the precision "
                "of the weights; the estimate is biased"
            )
    # All scores have the same board, rule, pieces, seed, lookahead and engine.
    first = scores[0]
    # Text such as ", the next one known". It is empty without a lookahead.
    lookahead = Lookahead.from_dict(first).phrase
    pieces = f"{first['pieces']} (seed {first['seed']}){lookahead}"
    game = f"board {first['board']}, {first['rule']} rule, pieces {pieces}"
    title = f"{game}, engine {first['device']}"
    header = [
        "controller",
        "features",
        "lines/game",
        "95 % interval",
        "from",  # The number of games or of estimates.
        "decisions",
        "speed",  # For a score of the package, the machine and the date instead.
    ]
    return f"{printable(title)}\n{table(header, list(map(_score_row, scores)))}{notes}"


def _score_row(score: Score) -> list[str]:
    """Return the row of a score in `score_table`."""
    name = score["controller"]
    # The package's scores of published controllers have no entry "features".
    features = score.get("features") or published(name).features
    return [
        name,
        feature_label(features),
        format_lines(score["lines_per_game"]),
        interval_text(score),
        count_text(score),
        f"{score['decisions']:,}",
        _speed_or_origin(score),
    ]


def _speed_or_origin(score: Score) -> str:
    """Return the decisions per second of a score as text.

    A score that the package has is shown with the machine and the date instead.
    """
    if shipped := score.get("measured"):
        return f"{shipped['machine']}, {shipped['date'][:10]}"
    seconds = score.get("seconds")
    return f"{format_lines(score['decisions'] / seconds)}/s" if seconds else "-"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as text: the first column flush left, the others flush right."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in [header, ["-" * width for width in widths], *rows]:
        first, *others = row
        cells = [first.ljust(widths[0]), *map(str.rjust, others, widths[1:])]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
