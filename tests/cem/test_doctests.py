import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name",
    [
        *("cem", "cem.optimizer", "cem.checkpoint", "cem.stopping", "cem.trainer"),
        *("cem.evaluation", "cem.snapshot"),
    ],
)
def test_examples_in_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
