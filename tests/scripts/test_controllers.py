"""Good controllers by name, the learned ones among them."""

from __future__ import annotations

from pathlib import Path

import pytest
from _controllers import FOLDER, GOOD, good_controller, named

from tetris import LinearController, Rules, published, rollout


@pytest.mark.parametrize("features", GOOD)
def test_every_feature_set_has_a_controller_that_plays_on(features: str) -> None:
    controller = good_controller(features)
    assert controller.features == features
    # A random one ends a game every thirty decisions.
    played = rollout([controller.weights], Rules(10, 20), 8, 1000, 1, features=features)
    assert int(played.games) <= 1


def test_learned_controllers_tell_how_they_came_about() -> None:
    for file in FOLDER.glob("*.json"):
        controller = LinearController.load(file)
        assert (controller.name, GOOD[controller.features]) == (file.stem, file.stem)
        assert {"command", "config", "seed", "versions", "score"} <= controller.provenance.keys()


def test_other_names_are_those_of_tetris(tmp_path: Path) -> None:
    assert named("DT-20") is published("dt20")
    mine = LinearController("holes", (-1.0,), Rules(6, 6), "mine")
    mine.save(tmp_path / "controller.json")
    assert named(str(tmp_path)) == mine
    with pytest.raises(ValueError, match="got 'bertseka'"):
        named("bertseka")
