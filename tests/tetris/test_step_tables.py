"""Features of steps as an engine has them: one for each table, and the tables behind the weights."""

from __future__ import annotations

import torch

from tetris.game.feature_sets import feature_names
from tetris.play.engines import extension
from tetris.play.step_tables import engine_features, engine_weights


def test_features_without_steps_stay_what_they_are() -> None:
    names, weights = feature_names("dt"), torch.arange(18, dtype=torch.int32).reshape(2, 9)
    assert engine_features(names) == names
    assert engine_weights(weights, names) is weights


def test_one_feature_stands_for_all_of_a_table() -> None:
    names = ("step_0_1", "holes", "step_pair_3_0_6", "step_8_6", "wells")
    assert engine_features(names) == ("holes", "wells", "step_features_1", "step_features_2")
    both = [extension(each) for each in (names, ("holes", "wells", "step_1_0", "step_pair_0_0_0"))]
    assert both[0].name == both[1].name


def test_the_tables_lie_behind_the_weights() -> None:
    names = ("step_0_1", "holes", "step_pair_3_0_6", "step_8_6", "wells")
    (row,) = engine_weights(torch.tensor([[10, 20, 30, 40, 50]], dtype=torch.int32), names).tolist()
    assert row[:4] == [20, 50, 0, 0]
    single, double = row[4 : 4 + 16 * 8], row[4 + 16 * 8 :]
    assert len(double) == 16 * 64
    assert {place: value for place, value in enumerate(single) if value} == {2 * 8 + 1: 10, 10 * 8 + 6: 40}
    assert {place: value for place, value in enumerate(double) if value} == {5 * 64 + 6: 30}


def test_every_step_of_the_widest_board_has_a_place_of_its_own() -> None:
    names = feature_names("dt_step_pairs")
    weights = torch.arange(1, len(names) + 1, dtype=torch.int32).unsqueeze(0)
    row = engine_weights(weights, names)[0]
    assert sorted(row[row > 0].tolist()) == list(range(1, len(names) + 1))
