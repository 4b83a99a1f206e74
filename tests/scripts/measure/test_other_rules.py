"""scripts/measure/other_rules.py: what it scores is what rollouts give; its block of a page."""

from __future__ import annotations

import argparse
from types import SimpleNamespace

import pytest
from measure import other_rules
from pages import limits_blocks

from tetris import Rules, published
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.scores import Limit, measure


def test_it_is_what_rollouts_give_and_the_page_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_rules, "DECISIONS", {("10x6", "bag"): {"dellacherie": 6400}})
    figures, data, _ = other_rules.measure(argparse.Namespace(), "cpu")
    who, rules = published("dellacherie"), Rules(10, 6, pieces="bag")
    played, _ = measure(who, rules, Limit(decisions=6400), DEFAULT_SEED, "cpu")
    (score,) = data["measurements"]
    assert (score["lines"], score["games"], score["pieces"]) == (played.lines, played.games, "bag")
    lines = played.lines_per_game
    assert dict(figures) == {"other_rules.10x6.bag.dellacherie.lines_per_game": lines}

    monkeypatch.setattr(
        limits_blocks, "load_all", lambda name: [SimpleNamespace(data=data)] if name == "other_rules" else []
    )
    monkeypatch.setattr(limits_blocks, "table_block", lambda header, rows, *results: rows)
    ((board, rule, pieces, name, shown),) = limits_blocks.other_rules()
    assert (board, rule, pieces, name) == ("10x6", "published", "bag", "dellacherie")
    assert shown.startswith(f"{float(f'{lines:.4g}'):g} (")
