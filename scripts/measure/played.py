"""The score of a published controller by play, as several measurements tell it."""

from __future__ import annotations

from typing import Any

from tetris import Rules, published
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.scores import Limit, Measurement, measure, progress_bar


def played(name: str, rules: Rules, decisions: int, device: str, known: int = 1) -> dict[str, Any]:
    """Return the measurement of a controller that plays a number of decisions, as plain values.

    Args:
        name: Of the controller.
        rules: The rules.
        decisions: The least that are made.
        device: The engine.
        known: 1, the piece that falls, or 2, the next one, too.
    """
    controller, limit = published(name), Limit(decisions=decisions)
    with progress_bar(f"{name} on {rules.board}, {rules.pieces}, {known} known", limit) as show:
        score, seconds = measure(controller, rules, limit, DEFAULT_SEED, device, show, pieces_known=known)
    who = (name, controller, rules, rules.pieces, DEFAULT_SEED, device)
    return Measurement(*who, score, seconds, known).to_dict()
