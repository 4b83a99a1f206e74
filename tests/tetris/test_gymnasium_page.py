"""docs/gymnasium.md: its blocks run, and its ids are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernels import CompilerMissingError
from tetris.envs import IDS, REFERENCE_IDS, native

PAGE = Path(__file__).parents[2] / "docs" / "gymnasium.md"
BLOCKS = re.findall(
    r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


@pytest.mark.parametrize("block", BLOCKS)
def test_its_blocks_run(block: str) -> None:
    if "make_vec" in block:
        try:
            native.operators()
        except CompilerMissingError as error:
            pytest.skip(str(error))
    exec(compile(block, PAGE, "exec"), {})


def test_it_names_every_id() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(BLOCKS) == 3
    assert set(re.findall(r"`(CemTetris/[^`]*)`", text)) == {*IDS, *REFERENCE_IDS}
