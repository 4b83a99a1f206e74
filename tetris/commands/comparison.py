"""The last page of a training run: the learned controller beside published ones, measured alike.

What hardly loses on a board is estimated there by importance splitting as well, since few of its games, if
any, end while it is played.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tetris import LinearController, Rules, published
from tetris.evaluation.estimates import DEVICES, Estimate, estimate, hardly_ends
from tetris.evaluation.scores import DEFAULT_SEED, Limit, Measurement, measure, progress_bar
from tetris.training.recipe import Recipe

REFERENCES = ("bcts", "dt20")
BOARDS = ((10, 10), (10, 20))
"""The boards on which the literature scores controllers."""

HIGH, HIGH_FACTOR = 16, 4
"""From this height on, games are so long that a GPU makes so many times the decisions."""

TELLING_GAMES = 30
"""With fewer games the interval of a score ends beyond one and a half times as much."""

ESTIMATE_FACTOR, MOST_ESTIMATED = 2, 1_000_000_000
"""Decisions of an estimate: so many times those of a score or that many, in whole batches of `estimate`."""


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
    factor = HIGH_FACTOR if rules.height >= HIGH and recipe.device == "cuda" else 1
    limit = Limit(decisions=recipe.score_decisions * factor)
    for player in (controller, *map(published, REFERENCES)):
        label = "learned" if player is controller else player.name
        with progress_bar(f"{label} on {rules.board}", limit) as show:
            score, seconds = measure(player, rules, limit, DEFAULT_SEED, recipe.device, show, check)
        yield Measurement(label, player, rules, recipe.pieces, DEFAULT_SEED, recipe.device, score, seconds)


def estimate_rare(
    recipe: Recipe, measurements: Sequence[Measurement], check: Callable[[], None]
) -> Iterator[Estimate]:
    """Estimate those who hardly lose on a board, where the learned controller does; otherwise none.

    Args:
        recipe: Says for how long, and on which engine.
        measurements: What `compare` found on the board, the learned controller's first.
        check: Called a few times a second; what it raises ends the estimate.
    """
    rare = [each for each in measurements if hardly_ends(each.score.games, each.score.decisions)]
    learned = measurements[0]
    if recipe.device not in DEVICES or learned not in rare or learned.score.games >= TELLING_GAMES:
        return
    decisions = min(ESTIMATE_FACTOR * recipe.score_decisions, MOST_ESTIMATED)
    for each in rare:
        yield estimate(
            each.label,
            each.controller,
            each.rules,
            recipe.device,
            lambda found: found.decisions >= decisions,
            check=check,
        )


def _can_play(controller: LinearController, rules: Rules) -> bool:
    try:
        controller.names_on(rules)
    except ValueError:
        return False
    return True
