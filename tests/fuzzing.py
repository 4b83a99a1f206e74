"""Hypothesis for the tests: the same examples in every run, no database, few unless asked for
more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, given, settings  # noqa: E402 - where it is installed
from hypothesis import strategies as st  # noqa: E402


def fuzz(check: Callable[..., None], count: int, seed: int = 0, **arguments: Any) -> None:
    """Call ``check`` with ``count`` drawn values of strategies; the smallest that fails is
    reported."""
    chosen = settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=not seed,
        suppress_health_check=tuple(HealthCheck),
        print_blob=False,
    )
    drawn = chosen(given(**arguments)(check))
    (hypothesis.seed(seed)(drawn) if seed else drawn)()


TEXT = st.text(max_size=8) | st.sampled_from(
    ["\udc80", "10x10", "NaN", "\x1b[2J", "<b>", "dt", ""]
)
NUMBERS = (
    st.integers(-3, 30)
    | st.sampled_from([1 << 31, 1 << 63, 1 << 64, -(1 << 63)])
    | st.floats()
    | st.booleans()
)
JSON = st.recursive(
    st.none() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
"""Any value that Python reads from JSON, NaN and integers beyond all floats among them."""


@st.composite
def changed(draw: Any, values: Any, most: int = 3) -> Any:
    """Plain values of JSON with up to ``most`` of them, at any depth, replaced, removed or
    added."""
    for _ in range(draw(st.integers(1, most))):
        values = draw(_changed(values))
    return values


@st.composite
def _changed(draw: Any, values: Any) -> Any:
    if isinstance(values, dict) and values and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(values)))
        how = draw(st.integers(0, 9))
        if how == 0:
            return {name: value for name, value in values.items() if name != key}
        if how == 1:
            return {**values, draw(TEXT): draw(JSON)}
        return {**values, key: draw(_changed(values[key]))}
    if isinstance(values, list) and values and draw(st.integers(0, 9)):
        place = draw(st.integers(0, len(values) - 1))
        if draw(st.integers(0, 4)) == 0:
            return values[:place] + values[place + 1 :]
        return [*values[:place], draw(_changed(values[place])), *values[place + 1 :]]
    return draw(JSON)


@st.composite
def damaged(draw: Any, content: bytes) -> bytes:
    """Bytes of a file that are cut off, changed, repeated, or something else."""
    how = draw(st.integers(0, 4))
    start = draw(st.integers(0, len(content)))
    end = draw(st.integers(start, min(len(content), start + 40)))
    if how == 0:
        return content[:start]
    if how == 1:
        return content[:start] + draw(st.binary(max_size=8)) + content[end:]
    if how == 2:
        return content[:end] + content[start:]
    if how == 3:
        return content[:start] + b"[" * draw(st.sampled_from([1, 100_000])) + content[end:]
    return draw(st.binary(max_size=100))
