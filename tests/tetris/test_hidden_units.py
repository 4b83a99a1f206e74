"""Hidden units: their names, weights and activations, and what they are not used for."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from engine_games import played_by, same, stacks, totals

from tetris import (
    LinearController,
    Lookahead,
    Policy,
    Streams,
    feature,
    feature_names,
    weight_names,
)
from tetris.envs import TetrisVectorEnv
from tetris.game.decisions import after_states, weighted_sums
from tetris.game.features import DENOMINATORS, AfterState, feature_values
from tetris.game.hidden_units import layout_of
from tetris.game.policy import Player
from tetris.game.rules import Rules
from tetris.play.quantized_weights import engine_weights, played_weights, quantized_weights
from tetris.record.explanation import explain
from tetris.view.play_page import play_page

SLOW = pytest.mark.slow
FEATURES = "dellacherie"
COLUMN_FEATURES = "landing_height,lines,holes,column_height_0,step_0_4,max_height"


def weights_for(features: str, width: int = 10, population: int = 1) -> torch.Tensor:
    """Random weights, with which a game has some lines."""
    names = weight_names(features, width)
    weights = torch.randn(population, len(names), generator=torch.Generator().manual_seed(1))
    good = {"holes": -4.0, "landing_height": -2.0, "column_transitions": -3.0}
    return weights + torch.tensor([good.get(name, 0.0) for name in names])


@pytest.mark.parametrize("features", ["dt+", "dt+0", "dt+33", "dt+x", "dt+1+1"])
def test_wrong_units_are_refused(features: str) -> None:
    with pytest.raises(ValueError, match="expected 1 to 32 hidden units"):
        weight_names(features)


def test_features_of_columns_and_removed_rows_are_no_inputs() -> None:
    layout = layout_of(weight_names(f"{COLUMN_FEATURES} + 2"))
    assert layout.inputs == ("landing_height", "holes", "max_height")
    assert layout.units == 2
    assert layout.names == weight_names(f"{COLUMN_FEATURES}+2")
    assert layout.names[6:11] == (
        "unit_0_landing_height",
        "unit_0_holes",
        "unit_0_max_height",
        "unit_0_bias",
        "unit_0",
    )


def test_a_feature_of_ones_own_may_be_named_unit(own_features_forgotten: None) -> None:
    def unit_area(after: AfterState) -> int:
        return len(after.rows)

    feature(unit_area)
    layout = layout_of(weight_names("holes, unit_area + 1"))
    assert layout.features == layout.inputs == ("holes", "unit_area")
    policy = Policy(weights_for("holes, unit_area"), "holes, unit_area")
    with pytest.raises(ValueError, match="unit_area"):
        played_by("cpu", policy, Streams(Rules()))


def test_units_need_an_input() -> None:
    with pytest.raises(ValueError, match="expected a feature of the whole board"):
        weight_names("column_height_0, lines + 2")


def test_activations_are_those_of_whole_numbers() -> None:
    """The engine's sums, by Python's integers: shifts round down, as the reference does."""
    names = weight_names("dt+32")
    layout = layout_of(names)
    weights = weights_for("dt+32")
    integers, _ = quantized_weights(weights, names)
    by_unit = integers[0, len(layout.features) :].reshape(32, -1).tolist()
    player = Player(names, played_weights(weights, names)[0].numpy())
    rng = random.Random(1)
    limited = {0, 1023}
    for _ in range(20):
        rows = tuple(rng.randrange(1, 1023) for _ in range(rng.randrange(20)))
        for after in after_states(rows, rng.randrange(7), Rules()):
            values = feature_values(after, layout.inputs)
            inputs = [
                min(int(value * DENOMINATORS.get(name, 1)), 127)
                for name, value in zip(layout.inputs, values, strict=True)
            ]
            expected = []
            for *inside, _ in by_unit:
                total = sum(w * x for w, x in zip(inside, [*inputs, 32], strict=True))
                expected.append(min(max(total >> 3, 0), 1023))
            found = np.array(player.features_of(after)[9:]).reshape(32, -1)
            assert (found[:, -1] * 16).tolist() == expected
            assert not found[:, :-1].any()
            limited -= set(expected)
    assert not limited  # both limits were reached


def test_the_length_of_a_unit_does_not_matter() -> None:
    names = weight_names(f"{FEATURES}+2")
    weights = weights_for(f"{FEATURES}+2")
    longer = weights.clone()
    first = names.index("unit_1_landing_height")
    longer[:, first : names.index("unit_1")] *= 2.0**40
    assert torch.equal(played_weights(weights, names), played_weights(longer, names))


def test_a_policy_alone_has_the_weights_that_it_has_among_others() -> None:
    names = weight_names("bcts+1")  # Seven inputs and the bias need no padding.
    weights = weights_for("bcts+1", population=2)
    assert torch.equal(engine_weights(weights[:1], names), engine_weights(weights, names)[:1])


def test_without_output_weights_a_policy_is_linear() -> None:
    weights = weights_for(f"{FEATURES}+3")
    names = weight_names(f"{FEATURES}+3")
    for unit in range(3):
        weights[:, names.index(f"unit_{unit}")] = 0
    linear = Policy(weights[:, :6], FEATURES)
    policies = linear, Policy(weights, f"{FEATURES}+3")
    one, other = (played_by("python", policy, Streams(Rules(), 2)) for policy in policies)
    for games in (one, other):
        games.play_on(40)
    assert same(totals(one), totals(other))


@pytest.mark.parametrize(
    ("engine", "lookahead"),
    [
        ("cpu", Lookahead.NONE),
        ("warps", Lookahead.NONE),
        ("threads", Lookahead.NONE),
        pytest.param("portable", Lookahead.NONE, marks=SLOW),
        pytest.param("avx2", Lookahead.NONE, marks=SLOW),
        pytest.param("cpu", Lookahead.PREVIEW, marks=SLOW),
        ("cpu", Lookahead.EXPECTIMAX),
    ],
    ids=str,
)
def test_all_engines_agree(engine: str, lookahead: Lookahead) -> None:
    """Also on high stacks, of which a fast engine must not leave out the lowest rows."""
    features = f"{COLUMN_FEATURES}+5"
    policy = Policy(weights_for(features, 8, 3), features, lookahead)
    streams = Streams(Rules(8, 20), 3)
    one, other = (played_by(each, policy, streams) for each in ("python", engine))
    for games in (one, other):
        games.columns[:, 1:] = stacks(streams.rules, 2)
        games.play_on(1)
        games.play_on(60 if lookahead is Lookahead.NONE else 5)
    assert same(totals(one), totals(other))


def test_a_controller_with_units_is_saved_and_explained() -> None:
    weights = tuple(weights_for("du+1")[0].tolist())
    controller = LinearController(" DU + 01", weights)
    assert controller.features == "bcts+1"
    assert LinearController.from_dict(controller.to_dict()) == controller
    player = controller.player(Rules())
    after = next(after_states((), 0, Rules()))
    explanation = explain((), after, player)
    assert explanation.names[-1] == "unit_0"
    sums = weighted_sums(np.array(explanation.features), player.weights)
    assert explanation.value == pytest.approx(sums.item())


def test_units_are_neither_observations_nor_on_the_page() -> None:
    with pytest.raises(ValueError, match=r"dt\+2"):
        feature_names("dt+2")
    with pytest.raises(ValueError, match=r"dt\+2"):
        TetrisVectorEnv(2, features="dt+2")
    controller = LinearController("dt+2", tuple(weights_for("dt+2")[0].tolist()))
    with pytest.raises(ValueError, match=r"without hidden units.*got dt\+2"):
        play_page(controller, Rules())
