"""tests/browser/chromium.py: what a page complains about is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from chromium import Page


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("console.error('spoilt')", "spoilt"),
        ("setTimeout(() => { throw new Error('torn'); })", "torn"),
        ("fetch('https://example.invalid/').catch(() => {})", "request for https://example.invalid/"),
    ],
)
def test_what_a_page_complains_about_is_noticed(
    browser_page: Page, tmp_path: Path, program: str, problem: str
) -> None:
    (tmp_path / "page.html").write_text(f"<!doctype html><title>x</title><script>{program}</script>")
    browser_page.open(tmp_path / "page.html")
    browser_page.evaluate("new Promise((done) => setTimeout(done, 300))")
    found, browser_page.problems[:] = list(browser_page.problems), []
    assert any(problem in each for each in found)
