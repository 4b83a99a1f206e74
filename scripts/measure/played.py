"""The score of a published controller by play, as several measurements tell it."""

from __future__ import annotations

from typing import Any

from tetris import Rules, published
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.scores import Limit, Measurement, measure, progress_bar


def played(
    name: str,
    rules: Rules,
    decisions: int,
    device: str,
    pieces_known: int = 1,
    lookahead: bool = False,
    seed: int = DEFAULT_SEED,
    streams: int | None = None,
) -> dict[str, Any]:
    """Return the measurement of a controller that plays a number of decisions, as plain values.

    Args:
        name: Of the controller.
        rules: The rules.
        decisions: The least that are made.
        device: The engine.
        pieces_known: 1, the piece that falls, or 2, the next one, too.
        lookahead: See `tetris.Rollout`.
        seed: Of the pieces.
        streams: Of pieces; by default by the number of decisions.
    """
    controller, limit = published(name), Limit(decisions=decisions)
    way = f"{pieces_known} known{', lookahead' if lookahead else ''}"
    how = (pieces_known, lookahead)
    options: dict[str, Any] = {"pieces_known": pieces_known, "lookahead": lookahead, "streams": streams}
    with progress_bar(f"{name} on {rules.board}, {rules.pieces}, {way}", limit) as show:
        score, seconds = measure(controller, rules, limit, seed, device, show, **options)
    return Measurement(name, controller, rules, rules.pieces, seed, device, score, seconds, *how).to_dict()
