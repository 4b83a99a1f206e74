"""Scores: the estimate and its interval."""

from __future__ import annotations

import math

import pytest
import torch

from tetris.score import Score, chi2_quantile


# Tabulated quantiles (NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.4), to its three digits.
@pytest.mark.parametrize(
    ("probability", "degrees", "value"),
    [
        (0.95, 1, 3.841),
        (0.95, 2, 5.991),
        (0.975, 2, 7.378),
        (0.025, 2, 0.051),
        (0.975, 10, 20.483),
        (0.025, 10, 3.247),
        (0.975, 20, 34.170),
        (0.025, 20, 9.591),
        (0.975, 100, 129.561),
        (0.025, 100, 74.222),
    ],
)
def test_chi2_quantiles_are_the_tabulated_ones(probability: float, degrees: int, value: float) -> None:
    assert chi2_quantile(probability, degrees) == pytest.approx(value, abs=5.001e-4)


@pytest.mark.parametrize("probability", [0.025, 0.95, 0.975])
def test_chi2_with_two_degrees_is_the_exponential_distribution(probability: float) -> None:
    assert chi2_quantile(probability, 2) == pytest.approx(-2 * math.log(1 - probability), rel=1e-12)


def test_chi2_with_many_degrees_is_nearly_normal() -> None:
    degrees = 2_000_000
    assert (chi2_quantile(0.975, degrees) - degrees) / math.sqrt(2 * degrees) == pytest.approx(
        1.959964, abs=2e-3
    )


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 2), (1.0, 2), (float("nan"), 2), (0.5, 0)])
def test_chi2_arguments_out_of_range_are_refused(probability: float, degrees: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        chi2_quantile(probability, degrees)


def test_score_of_ten_games() -> None:
    score = Score(lines=1000, games=10, decisions=2600)
    low, high = score.ci95
    assert score.lines_per_game == 100.0
    assert low == pytest.approx(2000 / 34.1696, rel=1e-5)
    assert high == pytest.approx(2000 / 9.59078, rel=1e-5)


def test_score_where_no_game_has_ended_has_a_lower_bound_alone() -> None:
    score = Score(lines=1000, games=0, decisions=2600)
    assert score.lines_per_game is None
    low, high = score.ci95
    assert low == pytest.approx(1000 / -math.log(0.05), rel=1e-12)
    assert high is None


def test_score_without_a_line() -> None:
    assert Score(0, 4, 40).ci95 == (0.0, 0.0)


def test_interval_covers_the_mean_of_exponential_games() -> None:
    # 2000 scores of 5 games each: the misses are Binomial(2000, 0.05), 100 +- 9.7; beyond 5 sigma: error
    # 6e-7.
    generator = torch.Generator().manual_seed(1)
    lengths = torch.empty(2000, 5, dtype=torch.float64).exponential_(1 / 1e6, generator=generator).sum(1)
    low, high = Score(1_000_000, 5, 0).ci95
    assert high is not None
    misses = ((lengths * low / 1e6 > 1e6) | (lengths * high / 1e6 < 1e6)).sum().item()
    assert 51 < misses < 149


def test_scores_pool() -> None:
    assert Score(1, 2, 3) + Score(10, 20, 30) == Score(11, 22, 33)


def test_negative_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 0, got Score"):
        Score(-1, 0, 0)
