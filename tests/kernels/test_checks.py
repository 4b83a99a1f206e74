"""kernels/support/checks.py: integer arguments."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.support.checks import check_integer


def test_python_and_numpy_integers_are_returned_as_ints() -> None:
    assert [type(check_integer("n", value, 0, 9)) for value in (0, 9, np.int64(3))] == [int] * 3
    assert check_integer("n", 1 << 70, 0) == 1 << 70


@pytest.mark.parametrize("value", [True, 1.0, "1"])
def test_what_is_no_integer_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="expected n to be an int, got"):
        check_integer("n", value, 0, 9)


def test_what_is_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="expected n from 1 to 9, got 0"):
        check_integer("n", 0, 1, 9)
    with pytest.raises(ValueError, match="expected n >= 1, got 0"):
        check_integer("n", 0, 1)
