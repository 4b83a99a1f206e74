"""Features of a header and their references in Python: what differs is named before a run trains."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernels.loader import CompilerMissingError
from tetris import Rules
from tetris.play import own_features
from tetris.play.own_features import run_header
from tetris.training.reference_check import check_references, fingerprint, libraries

pytestmark = pytest.mark.usefixtures("own_features_forgotten")


def check(header: Path, rules: Rules) -> None:
    try:
        check_references(("holes", *run_header(header)), rules, "cpu")
    except CompilerMissingError as error:
        pytest.skip(str(error))


def test_a_header_plays_as_its_references(header: Path) -> None:
    check(header, Rules(6, 8, clear_on_overflow=True))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_header_plays_as_its_references_on_a_gpu(header: Path) -> None:
    check_references(("holes", *run_header(header)), Rules(6, 8, clear_on_overflow=True), "cuda")


# One more than the reference's: the games are the same.
@pytest.mark.parametrize("wrong", ["2 * after.heights.count(0)", "1 + after.heights.count(0)"])
def test_a_header_that_is_not_its_reference_is_named(header: Path, wrong: str) -> None:
    references = header.with_suffix(".py")
    references.write_text(references.read_text().replace("after.heights.count(0)", wrong))
    pattern = r"mine.h: empty_columns is not its reference in Python: on 6x8 it gives \d+ where the reference"
    with pytest.raises(ValueError, match=pattern):
        check(header, Rules(6, 8))


def test_the_engine_that_will_play_is_compared_as_well(header: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tetris.training.reference_check._difference_in_values", lambda *_: "")
    references = header.with_suffix(".py")
    references.write_text(references.read_text().replace("return after", "return -after", 1))
    pattern = r"empty_columns is not its reference .* they differ by decision \d+ of games that weigh it most"
    with pytest.raises(ValueError, match=pattern):
        check(header, Rules(6, 8))


def test_without_a_header_there_is_nothing_to_build() -> None:
    assert libraries(("holes", "wells")) == []


def test_a_header_and_its_references_differ_from_changed_ones(header: Path) -> None:
    names, rules, references = ("holes", *run_header(header)), Rules(6, 8), header.with_suffix(".py")
    found = [fingerprint(names, rules)]
    for file, old, new in ((references, "WEIGHT = 2", "WEIGHT = 3"), (header, "row += 2", "row += 3")):
        file.write_text(file.read_text().replace(old, new))
        own_features._headers.clear()
        found.append(fingerprint(("holes", *run_header(header)), rules))
    assert len({each["own_features"] for each in found}) == 3
    assert fingerprint(("holes", "wells"), rules) == {}
