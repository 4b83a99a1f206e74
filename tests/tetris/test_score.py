"""Scores: the estimate and its interval."""

from __future__ import annotations

import math

import pytest
import torch

from tetris.record.score import Score, chi2_quantile, dispersion


# Tabulated quantiles (NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.4), to its three digits.
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
def test_chi2_quantiles_are_the_tabulated_ones(probability: float, degrees: int, value: float) -> None:
    assert chi2_quantile(probability, degrees) == pytest.approx(value, abs=5.001e-4)


def test_chi2_with_many_degrees_is_nearly_normal() -> None:
    degrees = 2_000_000
    assert (chi2_quantile(0.975, degrees) - degrees) / math.sqrt(2 * degrees) == pytest.approx(
        1.959964, abs=2e-3
    )


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


@pytest.mark.parametrize("mean", [4.0, 9.0, 40.0])
def test_interval_of_a_fixed_length_covers_the_mean_at_least_95_times_in_a_hundred(mean: float) -> None:
    # Exact: the games that end in 1000 lines are Poisson, and every number of them is looked at.
    lines_per_game, covered = 1000 / mean, 0.0
    for games in range(150):
        low, high = Score(1000, games, 0).ci95
        if low <= lines_per_game and (high is None or lines_per_game <= high):
            covered += math.exp(games * math.log(mean) - mean - math.lgamma(games + 1))
    assert covered >= 0.95


def test_dispersion_divides_the_counts() -> None:
    assert Score(1000, 10, 2600, 0.5).ci95 == Score(2000, 20, 5200).ci95


@pytest.mark.parametrize(("spread", "expected"), [(0.2, 0.2), (1.0, 1.0), (3.0, 3.0)])
def test_dispersion_is_the_variance_between_streams(spread: float, expected: float) -> None:
    # 4000 streams of 100 games: standard deviation 2.2 %.
    generator = torch.Generator().manual_seed(2)
    games = (100 + 10 * spread**0.5 * torch.randn(4000, generator=generator)).round().long()
    counts = torch.stack([torch.full_like(games, 1000), games], dim=1)
    assert dispersion(counts) == pytest.approx(expected, rel=0.11)
    assert dispersion(counts.flip(0)) == dispersion(counts)


def test_dispersion_of_thirty_streams_by_hand() -> None:
    # Ten lines and a game each, but for one stream with two games and one with none: squares of 1 and 1.
    counts = torch.tensor([[10, 1]] * 28 + [[10, 2], [10, 0]])
    student, normal = 2.04523, 1.95996  # 97.5 % quantiles, the first with 29 degrees of freedom
    expected = (2 * 30 / 29 * (student / normal) ** 2 + 1) / (30 + 1)
    assert dispersion(counts) == pytest.approx(expected, rel=1e-3)
    assert dispersion(counts[:3]) == 1.0
