"""Random games on the C++ engine, in vectors and without, are the reference implementation's,
bit for bit."""

from __future__ import annotations

from typing import Any

import torch
from fuzzing import fuzz, st

from tetris import Policy, Rollout, Rules, Streams, feature_names
from tetris.game.rules import MAX_HEIGHT, MAX_WIDTH, MIN_HEIGHT, MIN_WIDTH, RULES

# With these, sums overflow to infinity, vanish, are not a number, or tie.
EXTREMES = (0.0, -0.0, 1e-45, -1e-38, 1.0, -1.0, 16_777_217.0, 3e38, -3e38)
GOOD = (-2.7, 1.4, -2.4, -6.3, 2.0, -2.7, -0.4, -9.5, 0.9)  # for dt
STREAMS = 2


@st.composite
def rules(draw: Any) -> Rules:
    width, height = (
        draw(st.integers(MIN_WIDTH, MAX_WIDTH)),
        draw(st.integers(MIN_HEIGHT, MAX_HEIGHT)),
    )
    letters = st.lists(st.sampled_from("IOTZSJL"), min_size=1, max_size=7, unique=True).map(
        "".join
    )
    rule = draw(st.sampled_from(RULES))
    return Rules.of(width, height, rule, draw(st.sampled_from(["uniform", "bag"]) | letters))


def test_games_are_the_same_in_cpp_and_python() -> None:
    decisions = 0

    def check(rules: Rules, data: Any) -> None:
        nonlocal decisions
        names = feature_names("dt", rules.width)
        weight = data.draw(st.sampled_from([st.floats(-10, 10), st.sampled_from(EXTREMES)]))
        weights = data.draw(
            st.just(GOOD) | st.lists(weight, min_size=len(names), max_size=len(names))
        )
        streams = Streams(
            rules,
            STREAMS,
            seed=data.draw(st.integers(0, (1 << 64) - 1)),
            first=data.draw(st.integers(0, 1 << 62)),
            games=data.draw(st.sampled_from([None, None, 1, 5])),
            shared=data.draw(st.booleans()),
        )
        parts = data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=3))
        python, other = (
            Rollout(Policy(weights), streams, device) for device in ("python", "cpu")
        )
        for part in parts:
            expected = python.advance(part)
            found = other.advance(part)
            for name in ("lines", "games", "decisions"):
                assert torch.equal(getattr(found, name), getattr(expected, name)), name
            assert torch.equal(other.boards, python.boards)
        decisions += int(expected.decisions)

    seed = 1
    while decisions < 500:
        fuzz(check, 6, seed, rules=rules(), data=st.data())
        seed += 1
