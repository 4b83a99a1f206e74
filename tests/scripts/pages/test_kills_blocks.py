"""The blocks of docs/what_kills.md."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pages import kills_blocks


def shown(monkeypatch: pytest.MonkeyPatch, data: dict[str, Any], block: str) -> list[list[str]]:
    monkeypatch.setattr(kills_blocks, "load_all", lambda name: [SimpleNamespace(data=data)])
    monkeypatch.setattr(kills_blocks, "table_block", lambda header, rows, *results: [list(header), *rows])
    rows: list[list[str]] = getattr(kills_blocks, block)()
    assert len({len(row) for row in rows}) == 1
    return rows[1:]


@pytest.fixture
def ends() -> dict[str, Any]:
    one = {"board": "10x10", "pieces": "uniform", "controller": "dt20", "split": True, "looked_at": 1200}
    shares = np.tile([0.1, 0.1, 0.1, 0.3, 0.2, 0.1, 0.1], (7, 1)).tolist()
    one["shares"] = {"mean": shares, "error": np.full((7, 7), 0.004).tolist()}
    runs = [0.0] * 41
    runs[3], runs[8] = 0.75, 0.25
    one |= {name: {"mean": runs} for name in ("runs", "alternations")}
    one |= {name: {"mean": [9.0 - i for i in range(7)]} for name in ("heights", "holes")}
    one["usual"] = {"mean": [4.4, 0.5]}
    return {
        "windows": list(kills_blocks.SHOWN_WINDOWS),
        "before": list(kills_blocks.SHOWN_BEFORE),
        "measurements": [one],
        "anywhere": {"uniform": {"runs": runs, "alternations": runs}},
    }


def test_the_last_pieces_are_shown_with_their_greatest_error(
    monkeypatch: pytest.MonkeyPatch, ends: dict[str, Any]
) -> None:
    (row,) = shown(monkeypatch, ends, "last_pieces")
    assert row[:5] == ["10x10", "uniform", "dt20", "estimated", "1,200"]
    assert row[5:] == [*["50.0%"] * 7, "± 0.8%", "10.0%"]


def test_runs_are_shown_beside_those_from_anywhere(
    monkeypatch: pytest.MonkeyPatch, ends: dict[str, Any]
) -> None:
    usual, row = shown(monkeypatch, ends, "runs")
    assert usual[2] == "any 40 pieces"
    assert row[5:] == usual[5:] == ["4.25", "25.0%", "25.0%", "4.25", "25.0%"]


def test_stacks_are_shown_beside_the_usual_one(monkeypatch: pytest.MonkeyPatch, ends: dict[str, Any]) -> None:
    (row,) = shown(monkeypatch, ends, "last_stacks")
    assert (row[5], row[11], row[12]) == ("9.0, 9.0", "3.0, 3.0", "4.4, 0.5")


def test_a_second_chance_is_not_shown_of_the_same_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [
        {"controller": "dt20", "pieces_known": known, "survived": survived}
        for known, survived in ((1, [0, 0]), (2, [1, 30]))
    ]
    data = {"ahead": [5, 10], "measurements": [{"controller": "dt20", "ended": [10, 40], "others": others}]}
    assert shown(monkeypatch, data, "second_chances") == [["dt20", "dt20", "yes", "10% of 10", "75% of 40"]]


def test_what_never_ends_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {
        "measurements": [
            {
                **{"board": "4x4", "alternating": [None, None], "adaptive": [3, 4]},
                **{
                    "probabilities": [1.0] * 11 + [0.1836],
                    "bound": 4802.0,
                    "perfect": 7.0672,
                    "bound_next_known": 9e6,
                },
            }
        ]
    }
    assert shown(monkeypatch, data, "worst_pieces") == [
        ["4x4", "for ever", "3; 4", "0.18", "4,800", "7.067", "679", "9 M"]
    ]


def test_the_bound_of_alternating_pieces_is_a_power_of_ten() -> None:
    lines = 4 * kills_blocks.ALTERNATING * 7**kills_blocks.ALTERNATING // 10
    exponent = kills_blocks.alternating_bound()
    assert 10 ** (exponent - 1) < lines <= 10**exponent
