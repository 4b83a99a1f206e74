"""Numbers and scores as people read them."""

from __future__ import annotations

import pytest
from pages.wording import count, ratio, score, span


@pytest.mark.parametrize(
    ("value", "text"), [(3673.1, "3,670"), (8.7711e6, "8.77 M"), (999_999.0, "1 M"), (3.157e9, "3.16 G")]
)
def test_counts_have_three_digits(value: float, text: str) -> None:
    assert count(value) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(8992.2, 10737.1, "8,992-10,740"), (9.53e8, 1.54e9, "953-1,540 M"), (8e5, 1.2e8, "800,000-120 M")],
)
def test_a_range_names_its_unit_once(low: float, high: float, text: str) -> None:
    assert span(low, high) == text


def test_a_score_has_its_interval() -> None:
    assert score({"lines_per_game": 1.19e9, "ci95": [9.53e8, 1.54e9]}) == "1,190 M (953-1,540 M)"


def test_a_score_without_a_game_ended_is_a_bound() -> None:
    assert score({"lines_per_game": None, "ci95": [2.1e6, None]}) == "> 2.1 M"


@pytest.mark.parametrize(
    ("value", "ci95", "text"),
    [(27.05, [20.8, 35.8], "27.1 (20.8-35.8)"), (None, [2.0, None], "> 2"), (None, [0.0, 0.5], "< 0.5")],
)
def test_a_ratio_has_its_interval(value: float | None, ci95: list[float | None], text: str) -> None:
    assert ratio({"value": value, "ci95": ci95}) == text
