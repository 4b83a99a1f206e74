"""tetris/view/wording.py: counts and sizes as text."""

from __future__ import annotations

from tetris.view.wording import counted, file_size


def test_a_count_of_one_is_singular_and_a_small_file_is_told_in_bytes() -> None:
    assert (counted(1, "line"), counted(1200, "line")) == ("1 line", "1,200 lines")
    assert (file_size(999), file_size(1000)) == ("999 bytes", "1 kB")
