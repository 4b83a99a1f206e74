"""scripts/measure/ends.py: what is told of an end is what the reference implementation plays."""

from __future__ import annotations

import numpy as np
import pytest
from measure import ends
from measure.kills import mean_and_error, snakes

from tetris import Rules, published
from tetris.feature_sets import feature_names
from tetris.features import column_heights
from tetris.game import steps
from tetris.piece_stream import PieceStream

SEED, DECISIONS, STREAMS, LAST, BEFORE = 3, ends.BEGIN + 101, 2, 6, (1, 3, 9)


def test_played_ends_are_those_of_the_reference_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LAST", LAST), ("BEFORE", BEFORE), ("_KEPT", BEFORE[-1] + 1)):
        monkeypatch.setattr(ends, name, value)
    dt20, rules = published("dt20"), Rules(10, 5)
    (found,) = ends.ends(dt20, rules, DECISIONS, split=False, streams=STREAMS, batches=1, seed=SEED)
    weights, names = dt20.played_weights, feature_names("dt", 10)
    expected = set()
    games = 0
    for stream in range(STREAMS):
        pieces = PieceStream(rules, SEED, stream)
        played = list(steps((), pieces, weights, names, rules, 0, ends.STEP * (DECISIONS // ends.STEP)))
        over = [t for t, step in enumerate(played) if step.game_over]
        for began, t in zip([-1, *over], over, strict=False):
            games += t >= ends.BEGIN
            if t >= ends.BEGIN and t - began > BEFORE[-1]:
                stacks = [played[t - back].rows for back in BEFORE]
                heights = [column_heights(rows, 10) for rows in stacks]
                holes = [
                    sum(each) - sum(row.bit_count() for row in rows)
                    for each, rows in zip(heights, stacks, strict=True)
                ]
                last = [pieces[t - back] for back in range(LAST)]
                expected.add((*last, *map(max, heights), *holes))
    told = {tuple(map(int, row)) for row in np.hstack([found.pieces, found.heights, found.holes])}
    assert told == expected
    assert found.games == games >= len(expected) > 2


def test_weighted_streams_tell_the_same_as_play() -> None:
    """Five differences within 6 standard errors from 12 batches: 1 seed of 2,000 fails."""
    means, errors = [], []
    for split, decisions in ((False, 2400), (True, ends.BEGIN + 400)):
        found = ends.ends(
            *(published("dt20"), Rules(10, 8), decisions), split=split, streams=256, batches=12, seed=5
        )
        values = [
            (
                *(snakes(each.pieces[:, :window]).mean() for window in (1, 20)),
                each.heights[:, ends.BEFORE.index(20)].mean(),
                each.holes[:, ends.BEFORE.index(20)].mean(),
                each.usual[0],
            )
            for each in found
        ]
        mean, error = mean_and_error(values, [each.weight for each in found])
        means.append(mean)
        errors.append(error)
    assert (abs(means[0] - means[1]) < 6 * np.hypot(*errors)).all()
    assert (means[1][:2] > 2 / 7 + 6 * errors[1][:2]).all()


def test_stretches_from_anywhere_are_those_of_the_streams() -> None:
    uniform = ends.anywhere(Rules(), 3)
    stream = PieceStream(Rules(), ends.DEFAULT_SEED, (1 << 61) + 2)
    assert uniform[2].tolist() == [stream[t] for t in range(ends.LAST + 2, 2, -1)]
    bags = ends.anywhere(Rules(pieces="bag"), 700)
    assert np.bincount(bags[:, :7].ravel(), minlength=7) / 4900 == pytest.approx(1 / 7, abs=0.02)
