"""The last page of a training run: the learned controller beside published ones, measured alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from _recipe import Recipe
from _scoring import DEFAULT_SEED, Limit, Measurement, measure, progress_bar

from tetris import LinearController, Rules, published

REFERENCES = ("bcts", "dt20")
BOARDS = ((10, 10), (10, 20))
"""The boards on which the literature scores controllers."""

HIGH, HIGH_FACTOR = 16, 4
"""From this height on, games are so long that so many times the decisions are made."""


def boards(recipe: Recipe, controller: LinearController) -> list[Rules]:
    """Return where to measure: the boards of the literature where the controller can play, and its own."""
    candidates = dict.fromkeys([*(recipe.rules_on(*size) for size in BOARDS), recipe.rules])
    return [rules for rules in candidates if _can_play(controller, rules)]


def compare(
    recipe: Recipe, controller: LinearController, rules: Rules, check: Callable[[], None]
) -> Iterator[Measurement]:
    """Measure the controller and the published ones on a board, one after the other.

    All make the same number of decisions on the same streams, those of ``evaluate_tetris.py``.

    Args:
        recipe: Says for how long, and on which engine.
        controller: The learned one.
        rules: The rules with the board.
        check: Called a few times a second; what it raises ends the measurement.
    """
    factor = HIGH_FACTOR if rules.height >= HIGH else 1
    limit = Limit(decisions=recipe.score_decisions * factor)
    for player in (controller, *map(published, REFERENCES)):
        label = "learned" if player is controller else player.name
        with progress_bar(f"{label} on {rules.board}", limit) as show:
            score, seconds = measure(player, rules, limit, DEFAULT_SEED, recipe.device, show, check)
        yield Measurement(label, player, rules, recipe.pieces, DEFAULT_SEED, recipe.device, score, seconds)


def _can_play(controller: LinearController, rules: Rules) -> bool:
    try:
        controller.names_on(rules)
    except ValueError:
        return False
    return True
