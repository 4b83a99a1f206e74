"""scripts/measure/second_chance.py: who takes over plays the same pieces from the same board."""

from __future__ import annotations

import argparse

import pytest
from measure import second_chance
from measure.second_chance import Other

from tetris import Rules


def test_the_same_controller_survives_nothing() -> None:
    ended, (survived,) = second_chance.chances("dt20", (Other("dt20", 1),), Rules(10, 7), 32, 3)
    assert sum(ended) > 10
    assert survived == [0] * len(second_chance.AHEAD)


def test_who_knows_the_next_piece_survives_more_the_earlier_it_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(second_chance, "WINDOWS", {"dt20": 3})
    monkeypatch.setattr(second_chance, "OTHERS", (Other("dt20", 2),))
    monkeypatch.setattr(second_chance, "STREAMS", 64)
    monkeypatch.setattr(second_chance, "BOARD", "10x7")
    figures, data, _ = second_chance.measure(argparse.Namespace(), "cpu")
    (found,) = data["measurements"]
    ended, survived = found["ended"], found["others"][0]["survived"]
    assert figures["second_chance.dt20.dt20.known2"] == sum(survived) / sum(ended)
    assert survived[0] / ended[0] < survived[-1] / ended[-1] > 0.8
