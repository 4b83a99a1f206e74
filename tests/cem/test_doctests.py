import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name",
    [
        *("cem.optimizer", "cem.run.checkpoint", "cem.run.stopping", "cem.run.trainer"),
        *(
            "cem.core.config",
            "cem.core.evaluation",
            "cem.functional",
            "cem.search.minimize",
            "cem.plan.planner",
        ),
        *(
            "cem.rare.event",
            "cem.space",
            "cem.families.categorical",
            "cem.families.permutation",
        ),
        *("cem.policy.gym_objective", "cem.policy.parameter_vector"),
    ],
)
def test_examples_in_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
