"""Compare a learned controller with published ones, on the boards of the literature and on its own.

A score is played, or estimated by importance splitting for controllers that rarely lose. The package holds
the scores of the published controllers on the boards of the literature: a score is a function of controller,
rules, pieces and seed, on any machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tetris.evaluation.estimates import MOST_ENDS, PLAYED, Estimate, estimate, games_ended
from tetris.evaluation.scores import Limit, Measurement, Trial, measure, progress_bar
from tetris.evaluation.text_table import Score, is_estimate
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
    return [rules for rules in dict.fromkeys([*known, own]) if _can_play(controller, rules)]


def compare(trial: Trial, decisions: int, check: Callable[[], None] | None = None) -> Iterator[Score]:
    """Yield the score of the learned controller on a board, then those of the published ones.

    All play the same streams, those of ``evaluate_tetris.py``, for as many decisions; see `measure`.
    """
    yield _score(trial, decisions, check).to_dict()
    for name in REFERENCES:
        known = published_score(name, trial.rules) if trial.lookahead is Lookahead.NONE else None
        other = replace(trial, label=name, controller=published(name))
        yield known or _score(other, decisions, check).to_dict()


def _score(trial: Trial, decisions: int, check: Callable[[], None] | None) -> Measurement | Estimate:
    if trial.device in NATIVE and decisions >= PLAYED and games_ended(trial) <= MOST_ENDS:
        least = min(decisions, MOST_ESTIMATED)
        return estimate(trial, lambda found: found.decisions >= least, check=check)
    limit = Limit(decisions=decisions)
    with progress_bar(f"{trial.label} on {trial.rules.board}", limit) as show:
        return measure(trial, limit, show, check)


def verdict(scores: Sequence[Score]) -> str:
    """Return a line that compares the first score, the learned one, with the best published score."""
    learned = scores[0]
    value = learned["lines_per_game"]
    how = "estimated" if is_estimate(learned) else "played"
    low, high = learned["ci95"]
    if value is None:
        return f"more than {format_lines(low)} lines a game on {learned['board']}: no game ended"
    interval = f", 95 % interval {format_lines(low)} - {format_lines(high)}" if high is not None else ""
    text = f"{format_lines(value)} lines a game on {learned['board']} ({how}{interval})"
    best = next((each["lines_per_game"] for each in scores if each["controller"] == BEST_PUBLISHED), None)
    times = value / best if best else 0.0
    if times < 0.1:
        return text
    literature = learned["board"], learned["rule"], learned["pieces"]
    one_known = Lookahead.from_dict(learned) is not Lookahead.PREVIEW
    known = ", the best published" if literature == ("10x20", "published", "uniform") and one_known else ""
    return f"{text}: {times:{'.0f' if times >= 10 else '.2g'}} times {BEST_PUBLISHED}{known}"


def _can_play(controller: LinearController, rules: Rules) -> bool:
    try:
        controller.names_on(rules)
    except ValueError:
        return False
    return True
