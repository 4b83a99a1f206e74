"""scripts/measure/original_rule.py: what it scores is what rollouts by that rule give."""

from __future__ import annotations

import argparse

import pytest
from measure import original_rule

from tetris import Rules, published
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.scores import Limit, measure


def test_it_is_what_rollouts_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(original_rule, "DECISIONS", {("10x6", "bag"): {"dellacherie": 6400}})
    figures, data, _ = original_rule.measure(argparse.Namespace(), "cpu")
    controller, rules = published("dellacherie"), Rules(10, 6, pieces="bag", original=True)
    played, _ = measure(controller, rules, Limit(decisions=6400), DEFAULT_SEED, "cpu")
    (score,) = data["measurements"]
    assert (score["lines"], score["games"]) == (played.lines, played.games)
    assert (score["rule"], score["pieces"]) == ("original", "bag")
    assert dict(figures) == {"original_rule.10x6.bag.dellacherie.lines_per_game": played.lines_per_game}
