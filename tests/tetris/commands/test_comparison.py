"""scripts/_comparison.py: who is estimated after training, and for how long."""

from __future__ import annotations

import pytest
from sample_runs import estimating

from tetris import Rules, Score, published
from tetris.commands import comparison as _comparison
from tetris.commands.comparison import MOST_ESTIMATED, TELLING_GAMES, estimate_rare
from tetris.evaluation.estimates import PLAYED, hardly_ends
from tetris.evaluation.scores import Measurement
from tetris.training.recipe import Recipe, make_recipe

RULES = Rules(10, 20)
BATCH = 10_000_000


def measurement(label: str, games: int, decisions: int = 12_000_000) -> Measurement:
    score = Score(decisions * 2 // 5, games, decisions)
    return Measurement(label, published("dt20"), RULES, "uniform", 12345, "cpu", score, 1.0)


@pytest.fixture(autouse=True)
def batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates of ten million decisions more at a time."""
    monkeypatch.setattr(_comparison, "estimate", estimating([1e-8] * 16, BATCH))


def found(recipe: Recipe, *measurements: Measurement) -> list[tuple[str, int]]:
    return [(each.label, each.decisions) for each in estimate_rare(recipe, measurements, lambda: None)]


def test_who_hardly_loses_is_estimated_beside_the_learned_controller() -> None:
    recipe = make_recipe("cpu", {"score_decisions": 12_000_000})
    played = measurement("learned", 0), measurement("bcts", 1), measurement("weak", 5000)
    assert found(recipe, *played) == [("learned", 30_000_000), ("bcts", 30_000_000)]


def test_who_was_played_enough_is_not_estimated() -> None:
    recipe, long = make_recipe("cpu"), 10**9
    assert hardly_ends(TELLING_GAMES, long)
    assert found(recipe, measurement("learned", TELLING_GAMES, long), measurement("dt20", 0, long)) == []
    assert found(recipe, measurement("learned", 5000), measurement("dt20", 0)) == []
    # Too few decisions to tell.
    assert found(recipe, measurement("learned", 0, PLAYED - 1)) == []


def test_the_python_engine_estimates_nothing() -> None:
    assert found(make_recipe("python"), measurement("learned", 0)) == []


def test_an_estimate_has_its_limit() -> None:
    recipe = make_recipe("cpu", {"score_decisions": 10 * MOST_ESTIMATED})
    assert found(recipe, measurement("learned", 0)) == [("learned", MOST_ESTIMATED)]
