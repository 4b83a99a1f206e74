"""Two engines side by side: what is compared, and that a difference is found."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from measure import equality
from measure.equality import (
    FIRST_STREAMS,
    GAMES,
    PIECES,
    SEEDS,
    SHAPES,
    WEIGHTS,
    WIDTHS,
    Configuration,
    compare,
    compare_all,
    configurations,
    slowly,
    weights_of,
)

from tetris import Rollout, Rules
from tetris.rules import RULES

SMALL = ((1, 3, 40), (3, 1, 40), (2, 2, 25))


def decisions_of(configuration: Configuration) -> int:
    """Return the decisions of all candidates on all streams, where none stops."""
    return configuration.population * configuration.streams * sum(configuration.parts)


def test_configurations_cover_all_that_a_rollout_can_be_asked_for() -> None:
    chosen = configurations()
    assert chosen == configurations()
    assert sum(map(decisions_of, chosen)) >= 10**8
    for features, widths in WIDTHS.items():
        those = [each for each in chosen if each.features == features]
        boards = {(each.rules.width, each.rules.height) for each in those}
        assert {*product((widths[0], widths[-1]), (4, 24)), (10, 20)} <= boards
        assert {each.rules.width for each in those} == set(widths)
        assert {each.rules.rule for each in those} == set(RULES)
        assert {each.rules.pieces for each in those} == {Rules(pieces=pieces).pieces for pieces in PIECES}
        assert {each.weights for each in those} == set(WEIGHTS)
        assert {each.share_streams for each in those} == {False, True}
        assert {each.games_per_stream for each in those} == set(GAMES)
        assert {each.first_stream for each in those} == set(FIRST_STREAMS)
        assert {each.seed for each in those} == set(SEEDS)
        shapes = {(each.population, each.streams, sum(each.parts)) for each in those}
        assert shapes == set(SHAPES)
        assert {1, 2, 4, 6} == {len(each.parts) for each in those}
    assert max(FIRST_STREAMS) > 1 << 40


@pytest.mark.parametrize("features", ["dt", "bertsekas"])
def test_the_engines_of_this_machine_are_equal(features: str) -> None:
    chosen = configurations(10, (features,), SMALL)
    found = compare_all(chosen, "python")
    assert found["equality.configurations"] == 10
    assert found["equality.differences"] == 0
    stopping = [each for each in chosen if each.games_per_stream is not None]
    going_on = sum(map(decisions_of, chosen)) - sum(map(decisions_of, stopping))
    assert going_on < found["equality.decisions"] <= going_on + sum(map(decisions_of, stopping))


@pytest.mark.parametrize("way", [{"pieces_known": 2}, {"lookahead": True}], ids=str)
def test_they_are_equal_with_the_next_piece_known_and_with_lookahead(way: dict[str, Any]) -> None:
    chosen = slowly(configurations(10, ("dt",), SMALL), **way)
    assert {(each.pieces_known, each.lookahead) for each in chosen} == {
        (way.get("pieces_known", 1), way.get("lookahead", False))
    }
    assert compare_all(chosen, "python")["equality.configurations"] == 10


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_cuda_engine_is_equal_to_the_cpu_engine() -> None:
    shapes = ((1, 1, 2000), (3, 41, 500), (1, 20_001, 20), (150, 150, 40), (513, 264, 5))
    assert compare_all(configurations(20, ("dt",), shapes), "cuda")["equality.configurations"] == 20


@pytest.fixture
def configuration() -> Configuration:
    return Configuration("dt", Rules(6, 8), "random", 3, 2, (4, 5), True, None, 0, 1)


@pytest.mark.parametrize("name", ["_lines", "_games", "_made", "_columns"])
def test_one_bit_of_difference_is_found(
    monkeypatch: pytest.MonkeyPatch, configuration: Configuration, name: str
) -> None:
    class Wrong(Rollout):
        def advance(self, decisions: int, check: Any = None) -> Any:
            super().advance(decisions, check)
            if self.device == "python":
                getattr(self, name)[1, 1] += 1
            return super().advance(0)

    compare(configuration, "python")
    monkeypatch.setattr(equality, "Rollout", Wrong)
    what = {"_columns": "boards", "_made": "decisions"}.get(name, name.removeprefix("_"))
    message = f"expected python to play as cpu does, got other {what} of candidate 1 and 0 more in Config"
    with pytest.raises(RuntimeError, match=message):
        compare(configuration, "python")


def test_extreme_weights_are_finite_and_good_ones_begin_with_the_controller(
    configuration: Configuration,
) -> None:
    kinds = {kind: weights_of(configuration._replace(weights=kind)) for kind in WEIGHTS}
    assert {tuple(weights.shape) for weights in kinds.values()} == {(3, 9)}
    assert all(bool(weights.isfinite().all()) for weights in kinds.values())
    assert kinds["good"][0].tolist() == torch.tensor(equality.good_weights("dt", 6)).tolist()
    assert float(kinds["extreme"].abs().max()) > 1e38
