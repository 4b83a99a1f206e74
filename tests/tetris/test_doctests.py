"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = [
    *("game.feature_sets", "game.rules", "play.controller"),
    *("play.own_features", "play.rollouts", "training.objective"),
    *("game.positions", "record.placements", "view.played_game"),
]


@pytest.mark.usefixtures("own_features_forgotten")
@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"tetris.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
