"""Weights as whole numbers."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from tetris.game.decisions import Rows, after_states, choose, weighted_sums
from tetris.game.feature_sets import feature_names
from tetris.game.features import DENOMINATORS, FEATURES, feature_values
from tetris.game.policy import Player
from tetris.game.rules import Rules
from tetris.play.controller import published
from tetris.play.engines import extension
from tetris.play.quantized_weights import (
    BITS,
    engine_features,
    engine_weights,
    played_weights,
    quantized_weights,
)

NAMES = feature_names("dt_columns")


def _weights(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_weights_are_the_nearest_multiples_of_a_power_of_two() -> None:
    weights = _weights(50, len(NAMES))  # none of which is above 32767 steps
    whole, step = quantized_weights(weights, NAMES)
    assert whole.dtype == torch.int32
    assert step.shape == (50, 1)
    assert torch.equal(torch.frexp(step).mantissa, torch.full_like(step, 0.5))
    denominators = torch.tensor([DENOMINATORS.get(name, 1) for name in NAMES])
    assert ((weights.double() / denominators - whole * step).abs() <= step / 2).all()
    greatest = whole.abs().amax(1)
    assert greatest.min() >= 1 << (BITS - 1)
    assert greatest.max() < 1 << BITS
    assert torch.equal(played_weights(weights, NAMES), whole * step * denominators)


def test_the_length_of_a_weight_vector_does_not_matter() -> None:
    weights = _weights(8, len(NAMES))
    for scale in (2.0**-120, 0.5, 2.0**100):
        assert torch.equal(
            quantized_weights(weights * scale, NAMES)[0], quantized_weights(weights, NAMES)[0]
        )


def test_each_candidate_is_rounded_on_its_own() -> None:
    weights = _weights(8, len(NAMES)) * torch.logspace(-30, 30, 8).unsqueeze(1)
    alone = [quantized_weights(each, NAMES)[0] for each in weights]
    assert torch.equal(quantized_weights(weights, NAMES)[0], torch.stack(alone))


@pytest.mark.parametrize(
    ("weights", "whole"),
    [
        ((0.0, 0.0), (0, 0)),
        ((1e-45, 0.0), (1 << 14, 0)),
        ((3e38, -3e38), (28889, -28889)),
        ((1.99999, -1.0), (32767, -(1 << 14))),
        ((1.0, float("nan")), (1 << 14, 0)),
    ],
)
def test_the_greatest_weight_has_15_bits(
    weights: tuple[float, ...], whole: tuple[int, ...]
) -> None:
    assert (
        tuple(quantized_weights(torch.tensor(weights), ("holes", "wells"))[0].tolist()) == whole
    )


def test_a_controller_plays_whatever_the_default_device_is() -> None:
    with torch.device("meta"):
        assert published("dt20").played_weights.shape == (9,)


def test_features_times_their_denominators_are_whole() -> None:
    names = tuple(FEATURES)
    denominators = [DENOMINATORS.get(name, 1) for name in names]
    for after in after_states((0b1011101111, 0b0011001100), 3, Rules()):
        numbers = np.array(feature_values(after, names)) * denominators
        assert (numbers == numbers.round()).all()


def test_a_sum_is_the_same_in_any_order() -> None:
    weights = played_weights(_weights(len(NAMES)), NAMES).numpy()
    rows: Rows = ()
    rng = random.Random(0)
    order = list(range(len(NAMES)))
    for _ in range(50):
        after = choose(rows, rng.randrange(7), Player(NAMES, weights), Rules())
        rows = () if after.game_over else after.rows
        values = np.array([feature_values(after, NAMES)], dtype=np.float64)
        rng.shuffle(order)
        assert (
            sum(values[0, i] * weights[i] for i in order)
            == weighted_sums(values, weights).item()
        )


STEPS = ("step_0_1", "holes", "step_pair_3_0_6", "step_8_6", "wells")


def test_one_feature_of_an_engine_stands_for_all_of_a_table() -> None:
    assert engine_features(feature_names("dt")) == feature_names("dt")
    assert engine_features(STEPS) == ("holes", "wells", "step_features_1", "step_features_2")
    other = ("holes", "wells", "step_1_0", "step_pair_0_0_0")
    assert extension(STEPS).name == extension(other).name


def test_the_tables_lie_behind_the_weights() -> None:
    (row,) = engine_weights(torch.tensor([[10.0, 20, 30, 40, 50]]) * 2**9, STEPS).tolist()
    row = [each // 2**9 for each in row]
    assert row[:4] == [20, 50, 0, 0]
    single, double = row[4 : 4 + 16 * 8], row[4 + 16 * 8 :]
    assert len(double) == 16 * 64
    assert {place: value for place, value in enumerate(single) if value} == {
        2 * 8 + 1: 10,
        10 * 8 + 6: 40,
    }
    assert {place: value for place, value in enumerate(double) if value} == {5 * 64 + 6: 30}


def test_every_step_of_the_widest_board_has_a_place_of_its_own() -> None:
    names = tuple(name for name in feature_names("dt_step_pairs") if "step_" in name)
    weights = torch.arange(1, len(names) + 1).unsqueeze(0)
    row = engine_weights(weights, names)[0]
    assert row.unique().numel() == len(names) + 1
