"""Scores: the estimate and its interval."""

from __future__ import annotations

import math

import pytest
import torch

from tetris.record.score import Score, chi2_quantile, dispersion


# Tabulated quantiles (NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.4), to its
# three digits.
@pytest.mark.parametrize(
    ("probability", "degrees", "value"),
    [
        (0.975, 2, 7.378),
        (0.025, 2, 0.051),
        (0.975, 20, 34.170),
        (0.025, 20, 9.591),
        (0.975, 100, 129.561),
        (0.025, 100, 74.222),
    ],
)
def test_chi2_quantiles_are_the_tabulated_ones(
    probability: float, degrees: int, value: float
) -> None:
    assert chi2_quantile(probability, degrees) == pytest.approx(value, abs=5.001e-4)


def test_score_of_ten_games() -> None:
    score = Score(lines=1000, games=10, decisions=2600)
    low, high = score.ci95
    assert score.lines_per_game == 100.0
    assert low == pytest.approx(2000 / 36.7807, rel=1e-5)  # 22 degrees of freedom
    assert high == pytest.approx(2000 / 9.59078, rel=1e-5)  # 20


def test_score_where_no_game_has_ended_has_a_lower_bound_alone() -> None:
    score = Score(lines=1000, games=0, decisions=2600)
    assert score.lines_per_game is None
    low, high = score.ci95
    assert low == pytest.approx(1000 / -math.log(0.05), rel=1e-12)
    assert high is None


def test_score_of_games_without_a_line_has_an_upper_bound() -> None:
    low, high = Score(lines=0, games=1000, decisions=9000, dispersion=50.0).ci95
    assert low == 0.0
    # The mean of a geometric distribution of which 1,000 numbers are 0 with probability 0.05.
    assert high == pytest.approx(0.05 ** (-1 / 1000) - 1, rel=1e-12)


def test_dispersion_divides_the_counts() -> None:
    assert Score(1000, 10, 2600, 0.5).ci95 == Score(2000, 20, 5200).ci95


def test_dispersion_of_thirty_streams_by_hand() -> None:
    # Ten lines and a game each, but for one stream with two games and one with none: squares of
    # 1 and 1.
    counts = torch.tensor([[10, 1]] * 28 + [[10, 2], [10, 0]])
    student, normal = 2.04523, 1.95996  # 97.5 % quantiles, the first with 29 degrees of freedom
    expected = (2 * 30 / 29 * (student / normal) ** 2 + 1) / (30 + 1)
    assert dispersion(counts) == dispersion(counts.flip(0)) == pytest.approx(expected, rel=1e-3)
    assert dispersion(counts[:3]) == 1.1  # 30 lines in 3 games
