"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = ["controller", "feature_sets", "own_features", "played_game", "replay", "rollouts", "rules"]


@pytest.mark.usefixtures("own_features_forgotten")
@pytest.mark.parametrize("name", [*MODULES, "training.objective"])
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"tetris.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
