"""A good controller for every feature set."""

from __future__ import annotations

import pytest
from _controllers import GOOD, good_controller

from tetris import Rules, rollout


@pytest.mark.parametrize("features", GOOD)
def test_every_feature_set_has_a_controller_that_plays_on(features: str) -> None:
    controller = good_controller(features)
    assert controller.features == features
    # A random one ends a game every thirty decisions.
    played = rollout([controller.weights], Rules(10, 20), 8, 1000, 1, features=features)
    assert int(played.games) <= 1
