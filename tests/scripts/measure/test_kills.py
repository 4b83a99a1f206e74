"""scripts/measure/kills.py: runs, means and their errors; its blocks of a page."""

from __future__ import annotations

import argparse
import math

import numpy as np
import pytest
from measure import ends, kills

from tetris import Rules
from tetris.rules import PIECE_LETTERS


def pieces(text: str) -> np.ndarray:
    return np.array([[PIECE_LETTERS.index(letter) for letter in text]])


@pytest.mark.parametrize(
    ("text", "run", "alternation"),
    [("IOTJL", 0, 0), ("SSSIZ", 3, 1), ("ISZSZZ", 5, 4), ("ZSTSZS", 3, 3), ("SZSZSZ", 6, 6)],
)
def test_runs_are_counted(text: str, run: int, alternation: int) -> None:
    assert kills.longest_run(kills.snakes(pieces(text))).tolist() == [run]
    assert kills.longest_alternation(pieces(text)).tolist() == [alternation]


def test_runs_of_independent_pieces_are_as_probable_as_they_have_to_be() -> None:
    """Shares of 20,000 within 4 standard errors of 6 probabilities: 1 of 2,600 seeds fails."""
    count, p = 20_000, 2 / 7
    found = kills.longest_run(kills.snakes(ends.anywhere(Rules(), count)[:, :40]))
    for length in range(2, 8):
        shorter = [1.0] * length  # the probability that n pieces hold no run of that length
        for n in range(length, 41):
            before = shorter[n - length - 1] if n > length else 1 / (1 - p)
            shorter.append(shorter[n - 1] - (1 - p) * p**length * before)
        probability = 1 - shorter[40]
        error = math.sqrt(probability * (1 - probability) / count)
        assert abs(np.mean(found >= length) - probability) < 4 * error


def test_no_run_in_bags_is_longer_than_four() -> None:
    bags = ends.anywhere(Rules(pieces="bag"), 5000)
    assert kills.longest_run(kills.snakes(bags)).max() == 4


def test_the_error_of_a_mean_of_equal_batches_is_the_usual_one() -> None:
    values = np.random.default_rng(1).normal(size=(9, 2))
    mean, error = kills.mean_and_error(list(values), [2.0] * 9)
    assert mean == pytest.approx(values.mean(0))
    assert error == pytest.approx(values.std(0, ddof=1) / 3)
    mean, error = kills.mean_and_error([1.0, 5.0], [3.0, 1.0])
    assert (float(mean), float(error)) == pytest.approx((2.0, 2.0))


def test_a_measurement_tells_shares_runs_and_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = kills.Plan("10x8", "uniform", "dt20", True, kills.BEGIN + 100)
    monkeypatch.setattr(kills, "PLANS", (plan,))
    monkeypatch.setattr(kills, "ANYWHERE", 100)
    figures, data, _ = kills.measure(argparse.Namespace(boards=None), "cpu")
    (found,) = data["measurements"]
    shares = np.array(found["shares"]["mean"])
    assert shares.shape == (len(kills.WINDOWS), 7)
    assert shares.sum(1) == pytest.approx(1, abs=1e-5)
    assert [sum(found[each]["mean"]) for each in ("runs", "alternations")] == pytest.approx([1, 1], abs=1e-4)
    assert found["excess"]["mean"][39] == pytest.approx(
        40 * (figures["kills.10x8.uniform.dt20.split.snakes_40"] - 2 / 7), abs=1e-4
    )
    assert found["heights"]["mean"][0] > found["heights"]["mean"][-1] > 3
