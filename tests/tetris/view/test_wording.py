"""tetris/view/wording.py: counts and sizes as text."""

from __future__ import annotations

import pytest

from tetris.view.wording import counted, file_size


@pytest.mark.parametrize(("count", "text"), [(1, "1 line"), (1200, "1,200 lines")])
def test_a_count_of_one_is_singular(count: int, text: str) -> None:
    assert counted(count, "line") == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1 kB"),
    ],
)
def test_a_small_file_is_told_in_bytes(size: int, text: str) -> None:
    assert file_size(size) == text
