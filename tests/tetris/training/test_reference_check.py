"""Features of a header and their references in Python: what differs is named before a run
trains."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernels.loader import CompilerMissingError
from tetris import Rules
from tetris.play import own_features
from tetris.play.own_features import run_header
from tetris.training.reference_check import check_references, fingerprint

pytestmark = pytest.mark.usefixtures("own_features_forgotten")


def features_of(header: Path) -> str:
    return ",".join(("holes", *run_header(header)))


def check(header: Path, rules: Rules) -> None:
    try:
        check_references(features_of(header), rules, "cpu")
    except CompilerMissingError as error:
        pytest.skip(str(error))


def test_a_header_plays_as_its_references(header: Path) -> None:
    rules = Rules(6, 8, clear_on_overflow=True)
    check(header, rules)
    check_references("holes, right_edge + 2", rules, "cpu")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_header_plays_as_its_references_on_a_gpu(header: Path) -> None:
    check_references(features_of(header), Rules(6, 8, clear_on_overflow=True), "cuda")


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("empty_columns", "after.heights.count(0)", "2 * after.heights.count(0)"),
        ("right_edge", "after.heights[-1]", "min(after.heights[-1], 5)"),
        ("corners", "number % 2 for", "number % 2 and number > 1 for"),
    ],
)
def test_a_header_that_plays_otherwise_is_named(
    header: Path, name: str, right: str, wrong: str
) -> None:
    references = header.with_suffix(".py")
    references.write_text(references.read_text().replace(right, wrong))
    pattern = (
        rf"mine.h: {name} is not its reference in Python: "
        r"on 6x8 they differ by decision \d+ of games"
    )
    with pytest.raises(ValueError, match=pattern):
        check(header, Rules(6, 8))


def test_a_header_and_its_references_differ_from_changed_ones(header: Path) -> None:
    names, rules, references = (
        ("holes", *run_header(header)),
        Rules(6, 8),
        header.with_suffix(".py"),
    )
    found = [fingerprint(names, rules)]
    for file, old, new in (
        (references, "WEIGHT = 2", "WEIGHT = 3"),
        (header, "row += 2", "row += 3"),
    ):
        file.write_text(file.read_text().replace(old, new))
        own_features._headers.clear()
        found.append(fingerprint(("holes", *run_header(header)), rules))
    assert len({each["own_features"] for each in found}) == 3
    assert fingerprint(("holes", "wells"), rules) == {}
