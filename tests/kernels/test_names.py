"""kernels/support/names.py: the error for a name that nobody knows, and what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.support import names

DEVICES = ("auto", "cpu", "cuda", "python")


def test_the_error_lists_the_known_names_and_the_nearest() -> None:
    error = names.unknown_name("preset", "Quik", ("quick", "standard"))

    assert str(error) == "expected a preset among quick, standard; got 'Quik'; did you mean 'quick'?"
    assert str(names.unknown_name("operator", "x", ("lltm",))) == "expected an operator among lltm; got 'x'"


@pytest.mark.parametrize(("typed", "meant"), [("gpu", "cuda"), ("C++", "cpu"), ("phyton", "python")])
def test_a_device_by_another_name_is_known(typed: str, meant: str) -> None:
    assert names.did_you_mean(typed, DEVICES) == f"; did you mean {meant!r}?"


def test_a_path_is_near_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    assert names.meant_path(tmp_path / "nosuch") == ""
    (tmp_path / "run1").mkdir()
    assert names.meant_path(tmp_path / "rum1") == f"; did you mean '{tmp_path / 'run1'}'?"
