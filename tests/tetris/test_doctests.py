"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["controller", "feature_sets", "replay", "rollouts", "rules"])
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"tetris.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
