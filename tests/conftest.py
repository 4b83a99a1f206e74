"""Fixtures for all tests."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "browser"))  # for `import chromium`

from chromium import Page, find_chromium

WORKER = "PYTEST_XDIST_WORKER" in os.environ
if WORKER:
    # There are as many workers as cores. Set before torch is imported, and for the programs that tests start.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def browser_page(tmp_path: Path) -> Iterator[Page]:
    """A page in a headless Chromium, about which nothing may be left to complain when the test ends."""
    program = find_chromium()
    if program is None:
        pytest.skip("needs Chromium or Chrome on the path")
    with Page(program, tmp_path / "chromium") as page:
        yield page
    assert page.problems == []


@pytest.fixture(autouse=True)
def _gpu(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Lets one worker at a time use the GPU."""
    if not WORKER or request.node.get_closest_marker("cuda") is None:
        yield
        return
    with (tmp_path_factory.getbasetemp().parent / "gpu.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
