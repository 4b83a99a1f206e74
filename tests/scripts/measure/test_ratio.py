"""The ratio of two scores: its estimate, its interval, and what there is where no game ended."""

from __future__ import annotations

import math

import pytest
import torch
from measure.record import ratio

from tetris import Score

pytest.importorskip("scipy")


def test_a_ratio_is_that_of_the_lines_a_game() -> None:
    found = ratio(Score(80_000, 200, 200_000), Score(80_000, 1600, 200_000))
    low, high = found["ci95"]
    assert found["value"] == 8.0
    assert high is not None
    assert low < 8.0 < high
    # With so many games it is nearly the normal interval of the logarithm.
    wide = 1.96 * math.sqrt(1 / 200 + 1 / 1600)
    assert (low, high) == pytest.approx((8 * math.exp(-wide), 8 * math.exp(wide)), rel=0.01)


def test_the_ratio_the_other_way_round_is_the_inverse() -> None:
    one, other = Score(70_000, 20, 1), Score(80_000, 45, 1)
    there, back = ratio(one, other), ratio(other, one)
    assert back["value"] == pytest.approx(1 / there["value"])
    assert back["ci95"] == pytest.approx([1 / there["ci95"][1], 1 / there["ci95"][0]])


def test_where_no_game_ended_there_is_a_bound_at_most() -> None:
    played = Score(1000, 10, 2500)
    immortal = ratio(Score(1000, 0, 2500), played)
    assert (immortal["value"], immortal["ci95"][1]) == (None, None)
    assert immortal["ci95"][0] > 1
    unknown = ratio(played, Score(1000, 0, 2500))
    assert unknown["value"] is None
    assert unknown["ci95"][0] == 0.0
    assert ratio(Score(5, 0, 9), Score(5, 0, 9))["ci95"] == [0.0, None]


def test_a_score_without_a_line_is_refused() -> None:
    with pytest.raises(ValueError, match="expected scores with lines, got 0 and 5"):
        ratio(Score(0, 3, 9), Score(5, 1, 9))


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    # 400 pairs of Poisson counts with means 40 and 120, so that the ratio is 3. An exact interval misses at
    # most 5 % of the time: more than 34 misses in 400 have a probability below 0.001.
    random = torch.Generator().manual_seed(5)
    games = torch.poisson(torch.tensor([[40.0, 120.0]]).repeat(400, 1), generator=random).long().tolist()
    missed = 0
    for one, other in games:
        low, high = ratio(Score(10**6, one, 1), Score(10**6, other, 1))["ci95"]
        missed += not (low <= 3 and (high is None or high >= 3))
    assert missed <= 34
