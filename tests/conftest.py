"""Fixtures for all tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "browser"))  # for `import chromium`

from chromium import Page, find_chromium


@pytest.fixture
def browser_page(tmp_path: Path) -> Iterator[Page]:
    """A page in a headless Chromium, about which nothing may be left to complain when the test ends."""
    program = find_chromium()
    if program is None:
        pytest.skip("needs Chromium or Chrome on the path")
    with Page(program, tmp_path / "chromium") as page:
        yield page
    assert page.problems == []
