"""scripts/measure/two_pieces.py: it trains, and estimates what it learned beside others."""

from __future__ import annotations

import argparse
from functools import partial

import pytest
from measure import two_pieces

from tetris.evaluation.estimates import estimate


def test_what_is_learned_is_estimated_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"features": "dt", "population": 6, "elites": 2, "streams": 2}
    monkeypatch.setattr(two_pieces, "SETTINGS", {"cpu": settings})
    monkeypatch.setattr(two_pieces, "CURRICULA", {"cpu": "10x5:2:20"})
    monkeypatch.setattr(two_pieces, "BOARDS", {"10x10": 1})
    monkeypatch.setattr(two_pieces, "OTHERS", ("dt20",))
    monkeypatch.setattr(two_pieces, "estimate", partial(estimate, streams=8))
    figures, data, _ = two_pieces.measure(argparse.Namespace(seconds=None), "cpu")
    assert (data["generation"], data["generations"]) == (2, 2)
    learned, dt20 = data["estimates"]
    assert (learned["controller"], learned["weights"]) == ("learned", data["weights"])
    assert {each["pieces_known"] for each in (learned, dt20)} == {2}
    assert figures["two_pieces.10x10.dt20.estimated"] == dt20["lines_per_game"]
    times = learned["lines_per_game"] / dt20["lines_per_game"]
    assert figures["two_pieces.10x10.times_dt20"] == pytest.approx(times)
